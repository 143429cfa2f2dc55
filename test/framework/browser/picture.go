package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/chromedp/chromedp"
)

// Picture writes the whole page, as it is now, to a PNG file of few bytes.
func (t *Tab) Picture(path string) {
	t.tb.Helper()
	shot, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100)) // 100 is PNG.
	if err != nil {
		t.tb.Fatalf("take a picture: %v", err)
	}
	small, err := shrink(shot)
	if err != nil {
		t.tb.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.tb.Fatalf("create the folder of pictures: %v", err)
	}
	if err := os.WriteFile(path, small, 0o644); err != nil {
		t.tb.Fatalf("write a picture: %v", err)
	}
	t.tb.Logf("%s: %d KB", path, len(small)/1024)
}

// colours of a picture: enough for smooth edges of letters.
const colours = 128

// shrink makes a picture of the most frequent colours of it. Pages have few of them.
func shrink(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, fmt.Errorf("decode a picture: %w", err)
	}
	bounds := full.Bounds()
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) } //nolint:forcetypeassert // The model makes no other.
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	byCount := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range byCount[:min(colours, len(byCount))] {
		palette = append(palette, c)
	}
	small := image.NewPaletted(bounds, palette)
	index := map[color.RGBA]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, small); err != nil {
		return nil, fmt.Errorf("encode a picture: %w", err)
	}
	return out.Bytes(), nil
}
