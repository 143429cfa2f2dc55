package evictor

// budgetHeap has the waiting places, the oldest on top.
type budgetHeap []*budgetPlace

// Len implements heap.Interface.
func (h *budgetHeap) Len() int { return len(*h) }

// Less implements heap.Interface.
func (h *budgetHeap) Less(i, j int) bool { return (*h)[i].before((*h)[j]) }

// Swap implements heap.Interface.
func (h *budgetHeap) Swap(i, j int) {
	places := *h
	places[i], places[j] = places[j], places[i]
	places[i].index, places[j].index = i, j
}

// Push implements heap.Interface.
func (h *budgetHeap) Push(x any) {
	p := x.(*budgetPlace)
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop implements heap.Interface.
func (h *budgetHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	p.index = -1
	return p
}
