package httpcall

// RefusedError says that a call is not allowed. It would be refused again.
type RefusedError struct {
	// Reason says what was wrong, and what is allowed. It is for people.
	Reason string
}

func (e *RefusedError) Error() string { return "the call is refused: " + e.Reason }

// StatusError says that the server answered with a status that means failure.
type StatusError struct {
	// Status of the answer.
	Status int
	// Message is one line for people: the status and the end of the body.
	Message string
}

func (e *StatusError) Error() string { return "the server answered " + e.Message }
