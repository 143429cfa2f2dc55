package process

import "time"

// State of a participant. Completed, Interrupted and Canceled are final.
type State int

const (
	// Inactive has not had its turn.
	Inactive State = iota
	// Active has its turn now.
	Active
	// Completed said that it is done, or declined.
	Completed
	// Interrupted was silent for longer than the deadline, or still busy when the
	// target ended.
	Interrupted
	// Canceled had its turn when the request was canceled.
	Canceled
)

// Final reports whether a participant in this state had its turn and lost it.
func (s State) Final() bool { return s == Completed || s == Interrupted || s == Canceled }

func (s State) String() string {
	return [...]string{"Inactive", "Active", "Completed", "Interrupted", "Canceled"}[s]
}

// Presence says what is known of the target under its name.
type Presence int

const (
	// Unknown is the zero value: nobody has looked with certainty. Step decides
	// nothing, because every verdict on an unseen target would be a guess.
	Unknown Presence = iota
	// Present is the very incarnation the request names.
	Present
	// Gone is verified absence.
	Gone
	// Replaced is another incarnation under the same name.
	Replaced
)

// Target is what is known of the object to evict.
type Target struct {
	Presence Presence
	// Terminal: it has ended by itself and its object remains.
	Terminal bool
	// Deleting: its deletion has been asked for; it may take long.
	Deleting bool
	// Grouped: it belongs to a group that must not be evicted member by member.
	Grouped bool
	// EndSeenAt is when this process first saw that the target had ended; the
	// grace of Policy counts from here (ruling R11). Zero means just now.
	EndSeenAt time.Time
}

// ended reports whether the target needs no eviction any more.
func (t Target) ended() bool {
	return t.Presence == Gone || t.Presence == Replaced || (t.Presence == Present && t.Terminal)
}

// Participant is one of those who act on the request, in their order. A zero
// time means that it is not set.
type Participant struct {
	Name  string
	State State
	// ActivatedAt is when it got its turn.
	ActivatedAt time.Time
	// StartedAt, HeartbeatAt and CompletedAt are what it reported itself.
	StartedAt   time.Time
	HeartbeatAt time.Time
	CompletedAt time.Time
	// HeartbeatSeenAt is when this process first saw HeartbeatAt. It bounds a
	// heartbeat from the future (statement 50); zero means just now.
	HeartbeatSeenAt time.Time
	// LastResort keeps its turn as long as the target lives: nobody stands behind
	// it. It never falls silent, so that a long outage of ours ends no request, and
	// a completion reported in its name does not leave a request with nobody to act.
	LastResort bool
}

// Outcome of a request. Everything but OutcomeRunning is final.
type Outcome int

const (
	// OutcomeRunning is being processed.
	OutcomeRunning Outcome = iota
	// OutcomeEvicted says that the target has ended.
	OutcomeEvicted
	// OutcomeCanceled says that nobody wants it, or that it was refused.
	OutcomeCanceled
)

func (o Outcome) String() string { return [...]string{"Running", "Evicted", "Canceled"}[o] }

// Cause says why an outcome was reached. Adapters own the wording.
type Cause int

const (
	// NoCause belongs to OutcomeRunning.
	NoCause Cause = iota
	// TargetDeleted says that the target is gone or replaced.
	TargetDeleted
	// TargetTerminal says that the target has ended while its object remains.
	TargetTerminal
	// NoIntent says that nobody wants the eviction any more.
	NoIntent
	// TargetNotFound says that there was no such target when the request was first
	// looked at.
	TargetNotFound
	// TargetMismatch says that another incarnation had the name at that time.
	TargetMismatch
	// TargetGrouped says that the target was refused because it belongs to a group.
	TargetGrouped
)

func (c Cause) String() string {
	return [...]string{"NoCause", "TargetDeleted", "TargetTerminal", "NoIntent", "TargetNotFound", "TargetMismatch", "TargetGrouped"}[c]
}

// Snapshot is everything a decision may look at.
type Snapshot struct {
	Target Target
	// Intents are the names of those who want the eviction.
	Intents []string
	// Participants is the frozen plan; empty before the first step.
	Participants []Participant
	// Withdrawn: the request is on its way out as a whole. Nobody acts on it any more;
	// only the end of the target is still recorded.
	Withdrawn bool
	// Planned are the participants to freeze in the first step, in order. Only
	// Name and LastResort are read. Ignored once Participants is not empty.
	Planned []Participant
	// Outcome as recorded.
	Outcome Outcome
	Cause   Cause
	// CreatedAt is when the request was created: a lower bound for the baseline of
	// the first participant (ruling R2).
	CreatedAt time.Time
	// Generation of the request's intent and the one last acted on.
	Generation         int64
	ObservedGeneration int64
	// EngineStartedAt is when this process took over. See Policy.StartupGrace.
	EngineStartedAt time.Time
}

// Policy is the constants of the process.
type Policy struct {
	// HeartbeatDeadline is how long a participant may be silent. Default 20 min;
	// must be positive.
	HeartbeatDeadline time.Duration
	// ClockSkew is how far a reported time may lie in the future. Default 10 s.
	ClockSkew time.Duration
	// CompletionGrace is how long the active participant may still report after
	// the target has ended. Default 5 s.
	CompletionGrace time.Duration
	// StartupGrace is how long after EngineStartedAt nobody is interrupted, so
	// that an outage of ours never counts as a participant's silence. Default
	// 5 min.
	StartupGrace time.Duration
}

// DefaultPolicy returns the constants of KEP-4563 and the rulings.
func DefaultPolicy() Policy {
	return Policy{
		HeartbeatDeadline: 20 * time.Minute,
		ClockSkew:         10 * time.Second,
		CompletionGrace:   5 * time.Second,
		StartupGrace:      5 * time.Minute,
	}
}

// Transition is a change of one participant's state.
type Transition struct {
	Name     string
	From, To State
}

// Decision is what a step wants to be true afterwards. A decision that equals
// the snapshot (Changed is false) needs no write.
type Decision struct {
	Participants       []Participant
	Outcome            Outcome
	Cause              Cause
	ObservedGeneration int64
	// Transitions are the changes of state, in order.
	Transitions []Transition
	// Changed reports whether anything differs from the snapshot.
	Changed bool
	// WakeAt is when to step again even if nothing happens; zero means never.
	// It lies after the time given to Step.
	WakeAt time.Time
}
