package waitfor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UnknownKindError says that the API server has no such kind. It may come later.
type UnknownKindError struct {
	Ref Ref
	Err error
}

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("%s of %s is not installed", e.Ref.Kind, e.Ref.APIVersion)
}

func (e *UnknownKindError) Unwrap() error { return e.Err }

// RefusedError says that an object may not be watched, whoever asks. It would be refused
// again.
type RefusedError struct {
	Ref    Ref
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s of %s is refused: %s", e.Ref.Kind, e.Ref.APIVersion, e.Reason)
}

// ForbiddenError says that the manager may not read the kind.
type ForbiddenError struct {
	Ref      Ref
	Resource schema.GroupVersionResource
	// Grant says where to grant it.
	Grant string
	Err   error
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("Drawbridge may not read %s %s/%s: it needs the verbs list and watch on %s in API group %q (%s)",
		e.Ref.Kind, e.Ref.Namespace, e.Ref.Name, e.Resource.Resource, e.Resource.Group, e.Grant)
}

func (e *ForbiddenError) Unwrap() error { return e.Err }
