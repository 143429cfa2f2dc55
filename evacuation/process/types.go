package process

import (
	"cmp"
	"time"
)

// State of a participant. Completed, Interrupted and Canceled are final.
type State int

const (
	// Inactive has not had its turn.
	Inactive State = iota
	// Active has its turn now.
	Active
	// Completed said that it is done, or declined.
	Completed
	// Interrupted was silent for too long, still working at the deadline or when the target
	// ended, had not had its turn at the deadline, was skipped because it needs longer, or was
	// passed over because the node is lost.
	Interrupted
	// Canceled had its turn when the request was canceled.
	Canceled
)

// Final reports whether a participant in this state had its turn and lost it.
func (s State) Final() bool { return s == Completed || s == Interrupted || s == Canceled }

func (s State) String() string {
	return [...]string{"Inactive", "Active", "Completed", "Interrupted", "Canceled"}[s]
}

// Presence says what is known about the target.
type Presence int

const (
	// Unknown is the zero value: the target's state is not certain. Step decides
	// nothing, because a verdict on an unseen target would be a guess.
	Unknown Presence = iota
	// Present says that the incarnation that the request names exists.
	Present
	// Gone is verified absence.
	Gone
	// Replaced is another incarnation under the same name.
	Replaced
)

// Target is what is known about the object to evict.
type Target struct {
	Presence Presence
	// Terminal: it has ended by itself, but its object remains.
	Terminal bool
	// Deleting: it is being deleted, which may take long.
	Deleting bool
	// Grouped: it belongs to a group that must not be evicted member by member.
	Grouped bool
	// EndSeenAt is when this process first saw that the target had ended; the
	// grace of Policy counts from here (ruling R11). Zero means just now.
	EndSeenAt time.Time
}

// ended reports whether the target no longer needs an eviction.
func (t Target) ended() bool {
	return t.Presence == Gone || t.Presence == Replaced || (t.Presence == Present && t.Terminal)
}

// LostPolicy says what a participant does while the target's node is lost.
type LostPolicy int

const (
	// LostWait gets and keeps its turn as ever.
	LostWait LostPolicy = iota
	// LostSkip gets no turn, but keeps the one that it has.
	LostSkip
	// LostInterrupt gets no turn, and loses the one that it has.
	LostInterrupt
)

// Participant is one of the interceptors of a request. A zero time means not set.
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
	// HeartbeatDeadline is how long it may be silent; 0 means Policy.HeartbeatDeadline.
	HeartbeatDeadline time.Duration
	// CancelForbidden is what it reported in its turn: what it began cannot be undone. The
	// request goes on to its end then, even if nobody wants it any more.
	CancelForbidden bool
	// Minimum is how long it needs at least; 0 means that it takes what it gets.
	Minimum time.Duration
	// Skips: it gets no turn if the deadline leaves it less than Minimum. Otherwise it begins
	// nevertheless.
	Skips bool
	// OnNodeLost does not count for a last resort, nor for one that is Unhurried.
	OnNodeLost LostPolicy
	// Unhurried keeps, or gets, its turn whatever the deadline: it stands for a budget, which a
	// deadline is no reason to break, or for those who know no deadlines.
	Unhurried bool
	// LastResort keeps its turn as long as the target lives: no participant follows. It
	// never counts as silent, so that a long outage of ours ends no request, and a
	// completion reported in its name does not leave a request without an active
	// participant.
	LastResort bool
}

// Outcome of a request. Everything but OutcomeRunning is final.
type Outcome int

const (
	// OutcomeRunning says that the request is being processed.
	OutcomeRunning Outcome = iota
	// OutcomeEvicted says that the target has ended.
	OutcomeEvicted
	// OutcomeCanceled says that the eviction is no longer wanted, or that it was
	// refused.
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
	// NoIntent says that the eviction is no longer wanted.
	NoIntent
	// TargetNotFound says that there was no such target when the request was first
	// observed.
	TargetNotFound
	// TargetMismatch says that another incarnation had the name at that time.
	TargetMismatch
	// TargetGrouped says that the target was refused because it belongs to a group.
	TargetGrouped
)

func (c Cause) String() string {
	return [...]string{"NoCause", "TargetDeleted", "TargetTerminal", "NoIntent", "TargetNotFound", "TargetMismatch", "TargetGrouped"}[c]
}

// Snapshot is everything that a decision depends on.
type Snapshot struct {
	Target Target
	// Intents are the names of the requesters. Without any, the request is canceled, unless
	// a participant forbids that.
	Intents []string
	// Participants is the frozen plan; empty before the first step.
	Participants []Participant
	// Withdrawn: the request is being deleted. No participant acts on it any more; only
	// the end of the target is still recorded.
	Withdrawn bool
	// Planned are the participants to freeze in the first step, in order. Only
	// Name, HeartbeatDeadline, Minimum, Skips, OnNodeLost, Unhurried and LastResort are read. Ignored once Participants is not empty.
	Planned []Participant
	// Outcome as recorded.
	Outcome Outcome
	Cause   Cause
	// CreatedAt is when the request was created: a lower bound for the baseline of
	// the first participant (ruling R2).
	CreatedAt time.Time
	// Deadline is when every participant has to be done but the last resort and those that
	// are Unhurried; zero means never.
	Deadline time.Time
	// LostAt is from when on the target's node counts as lost; it may lie ahead. Zero means
	// that it is not.
	LostAt time.Time
	// Generation of the request's intent and the one last acted on.
	Generation         int64
	ObservedGeneration int64
	// EngineStartedAt is when this process took over. See Policy.StartupGrace.
	EngineStartedAt time.Time
}

// Policy has the constants of the process.
type Policy struct {
	// HeartbeatDeadline is how long a participant may be silent that has none of its own.
	// Default 20 min; must be positive.
	HeartbeatDeadline time.Duration
	// ClockSkew is how far a reported time may lie in the future. Default 10 s.
	ClockSkew time.Duration
	// CompletionGrace is how long the active participant may still report after
	// the target has ended. Default 5 s.
	CompletionGrace time.Duration
	// StartupGrace is how long after EngineStartedAt no participant is interrupted for its
	// silence, so that an outage of ours never counts as that. Default 5 min.
	StartupGrace time.Duration
	// DeadlineMargin is how much earlier than a requester's deadline needs the last resort
	// begins. Default 5 s.
	DeadlineMargin time.Duration
	// HardNotice is how long interceptors have from when they first learn of a requester that
	// does not wait, or of a deadline that is over. Default 10 s.
	HardNotice time.Duration
}

// DeadlineOf is how long the participant may be silent.
func (p Policy) DeadlineOf(a Participant) time.Duration {
	return cmp.Or(a.HeartbeatDeadline, p.HeartbeatDeadline)
}

// DefaultPolicy returns the constants of KEP-4563 and the rulings.
func DefaultPolicy() Policy {
	return Policy{
		HeartbeatDeadline: 20 * time.Minute,
		ClockSkew:         10 * time.Second,
		CompletionGrace:   5 * time.Second,
		StartupGrace:      5 * time.Minute,
		DeadlineMargin:    5 * time.Second,
		HardNotice:        10 * time.Second,
	}
}

// Transition is a change of one participant's state.
type Transition struct {
	Name     string
	From, To State
}

// ShortNotice says that the deadline leaves a participant, whose turn it is, less than its
// Minimum.
type ShortNotice struct {
	Name string
	// Needs is its Minimum, Has what the deadline leaves it, less than that and never
	// negative.
	Needs, Has time.Duration
	// Skipped: it gets no turn.
	Skipped bool
}

// Decision is the state after a step. A decision that equals the snapshot (Changed is
// false) needs no write.
type Decision struct {
	Participants       []Participant
	Outcome            Outcome
	Cause              Cause
	ObservedGeneration int64
	// Transitions are the changes of state, in order.
	Transitions []Transition
	// CutOff reports that in this step the deadline has passed somebody over.
	CutOff bool
	// Forbidding is the participant because of which a request that nobody wants any more is
	// not canceled, "" if there is none.
	Forbidding string
	// ShortNotices are given in this step, in order.
	ShortNotices []ShortNotice
	// Lost reports that the node of a target that lives is lost.
	Lost bool
	// PassedOver are those whom that has cost their turns in this step, in order.
	PassedOver []string
	// Changed reports whether anything differs from the snapshot.
	Changed bool
	// WakeAt is when to step again even if nothing happens; zero means never.
	// It lies after the time given to Step.
	WakeAt time.Time
}
