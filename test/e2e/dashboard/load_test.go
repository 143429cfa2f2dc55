//go:build unix

package dashboard

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

var loadFor = flag.Duration("load", 0, "how long the full load of TestALargeClusterStaysSmooth lasts; a smaller one lasts 3 s by default")

// maxPerSecond is how often a page may be told of changes.
const maxPerSecond = 4

// changesPerSecond of the large cluster.
const changesPerSecond = 200

// A large cluster that changes all the time: the browser gets differences only, not too
// often, and is not kept from work. The numbers of docs/guides/dashboard.md come from
// go test ./test/e2e/dashboard -run Large -v -args -load=12s.
func TestALargeClusterStaysSmooth(t *testing.T) {
	needBrowser(t)
	lasts, c := *loadFor, (*crowd)(nil)
	if lasts == 0 {
		lasts, c = 3*time.Second, newCrowd(50, 2000, 200)
	} else {
		c = newCrowd(500, 20000, 2000)
	}
	d := startDashboard(t, apiOf(t, c))
	tab := newTab(t)
	opened, pages := time.Now(), 1
	tab.Open(d.first)
	for _, path := range []string{"/", "/nodes/worker-007", "/interceptors", "/pods/team-07/app-00007"} {
		t.Run(path, func(t *testing.T) {
			tab.Open(d.at(path))
			pages++
			tab.Visible("main")
			browser.Eval[bool](tab, `window.longTasks = [], new PerformanceObserver(l => window.longTasks.push(...l.getEntries().map(e => e.duration))).observe({type: 'longtask'}), true`)
			before, cpu := len(tab.Messages()), cpuTime(d.program)
			began := time.Now()
			changed := churn(t, c, lasts)
			took, used := time.Since(began), cpuTime(d.program)-cpu
			messages := tab.Messages()[before:]
			long := browser.Eval[[]float64](tab, "window.longTasks")
			bytes, worst := 0, 0.0
			for _, m := range messages {
				bytes += m.Bytes
			}
			for _, ms := range long {
				worst = max(worst, ms)
			}
			t.Logf("%s: %d changes in %s; %.1f messages and %.1f KB per second; server %.0f ms of CPU per second; %d long tasks of the browser, the longest %.0f ms; page of %d KB",
				path, changed, took.Round(time.Millisecond), float64(len(messages))/took.Seconds(), float64(bytes)/1024/took.Seconds(),
				float64(used.Milliseconds())/took.Seconds(), len(long), worst, browser.Eval[int](tab, "document.documentElement.outerHTML.length")/1024)
			// A busy browser gets some messages late and then together, so what counts is how
			// many there were since the beginning; each page begins with one. The time between
			// two of them is tested where they are sent:
			// TestMessagesKeepThePaceHoweverOftenThingsChange.
			got := len(tab.Messages())
			if most := pages + int(maxPerSecond*time.Since(opened).Seconds()); got > most {
				t.Errorf("%d messages since the beginning, want at most %d", got, most)
			}
		})
	}
}

// churn changes the crowd all the time, and returns how many changes there were.
func churn(t *testing.T, c *crowd, lasts time.Duration) int {
	t.Helper()
	const each = 20 * time.Millisecond
	tick := time.NewTicker(each)
	defer tick.Stop()
	end := time.After(lasts)
	changed := 0
	for {
		select {
		case <-tick.C:
			n := int(changesPerSecond * each / time.Second)
			c.change(t, n)
			changed += n
		case <-end:
			return changed
		case <-t.Context().Done():
			return changed
		}
	}
}

// cpuTime that a program has used, on Linux; 0 elsewhere.
func cpuTime(program *cluster.Program) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", program.PID()))
	if err != nil {
		return 0 // It is a number for people only.
	}
	// The name of the program, in parentheses, may have spaces.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second.
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// The crowd's API server is good enough for the watches of client-go: one gets everything,
// and each change after that.
func TestTheCrowdCanBeWatched(t *testing.T) {
	c := newCrowd(10, 200, 50)
	config := must(clientcmd.BuildConfigFromFlags("", apiOf(t, c)))(t)
	watches := must(cache.New(config, cache.Options{Scheme: scheme}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watches.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	pods, requests := &corev1.PodList{}, &v1alpha1.EvictionRequestList{}
	for _, list := range []client.ObjectList{pods, requests} {
		eventually(t, fmt.Sprintf("%T to be read", list), func(ctx context.Context) error { return watches.List(ctx, list) })
	}
	if diff := cmp.Diff([]int{200, 50}, []int{len(pods.Items), len(requests.Items)}); diff != "" {
		t.Errorf("pods and requests (-want +got):\n%s", diff)
	}
	c.change(t, 20)
	eventually(t, "the last change to be seen", func(ctx context.Context) error {
		list := &v1alpha1.EvictionRequestList{}
		if err := watches.List(ctx, list); err != nil {
			return err
		}
		newest := ""
		for _, er := range list.Items {
			if er.ResourceVersion == strconv.Itoa(21) {
				return nil
			}
			newest = max(newest, er.ResourceVersion)
		}
		return fmt.Errorf("the newest is %s", newest)
	})
	if text := runPluginWith(t, apiOf(t, c), nil, "status"); !strings.Contains(text, "drain-worker-007") {
		t.Errorf("status:\n%s", text)
	}
}
