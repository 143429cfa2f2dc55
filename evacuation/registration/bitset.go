package registration

import (
	"math/bits"
	"slices"
)

// bitset is a set of small numbers. Its methods, except set, do not change the
// receiver.
type bitset []uint64

const wordBits = 64

func (b bitset) has(n int) bool {
	return n/wordBits < len(b) && b[n/wordBits]&(1<<(n%wordBits)) != 0
}

// set adds or removes a number in place; a set that is too small is returned grown.
func (b bitset) set(n int, in bool) bitset {
	if !in {
		if b.has(n) {
			b[n/wordBits] &^= 1 << (n % wordBits)
		}
		return b
	}
	for len(b) <= n/wordBits {
		b = append(b, 0)
	}
	b[n/wordBits] |= 1 << (n % wordBits)
	return b
}

func (b bitset) with(n int) bitset    { return slices.Clone(b).set(n, true) }
func (b bitset) without(n int) bitset { return slices.Clone(b).set(n, false) }

// each calls yield for every number that is in both sets.
func (b bitset) each(other bitset, yield func(n int)) {
	for w := range min(len(b), len(other)) {
		for word := b[w] & other[w]; word != 0; word &= word - 1 {
			yield(w*wordBits + bits.TrailingZeros64(word))
		}
	}
}

// differ calls yield for every number that is in one of the sets only. It may change that
// number's bit in other.
func (b bitset) differ(other bitset, yield func(n int)) {
	for w := range max(len(b), len(other)) {
		for word := b.word(w) ^ other.word(w); word != 0; word &= word - 1 {
			yield(w*wordBits + bits.TrailingZeros64(word))
		}
	}
}

func (b bitset) word(w int) uint64 {
	if w >= len(b) {
		return 0
	}
	return b[w]
}
