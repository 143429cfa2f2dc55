package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// levelKey is where the ConfigMap has the level.
const levelKey = "level"

// logLevel sets the log level from a ConfigMap, on every replica: a level that needs a
// restart is of no use in the middle of a stuck drain.
type logLevel struct {
	// Cache has that ConfigMap and no other.
	Cache  cache.Cache
	Config types.NamespacedName
	// Level is the logger's, Default the one of the flag.
	Level   zap.AtomicLevel
	Default string
}

// setupLogLevel adds the watch, if there is something to watch and a level to change.
func setupLogLevel(mgr ctrl.Manager, o Options) error {
	if o.Operations.LogLevelConfig == "" || o.Level == nil {
		return nil
	}
	return mgr.Add(&logLevel{Cache: mgr.GetCache(), Config: o.key(o.Operations.LogLevelConfig), Level: *o.Level, Default: o.LogLevel})
}

var _ manager.LeaderElectionRunnable = &logLevel{}

// NeedLeaderElection is false: every replica logs.
func (l *logLevel) NeedLeaderElection() bool { return false }

// Start follows the ConfigMap until the context ends.
func (l *logLevel) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("log-level")
	informer, err := l.Cache.GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", l.Config, err)
	}
	follow := func(obj any) {
		if from, ok := obj.(*corev1.ConfigMap); ok && from.Name == l.Config.Name && from.Namespace == l.Config.Namespace {
			l.follow(log, from.Data)
		}
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    follow,
		UpdateFunc: func(_, obj any) { follow(obj) },
		DeleteFunc: func(any) { l.follow(log, nil) },
	})
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", l.Config, err)
	}
	<-ctx.Done()
	if err := informer.RemoveEventHandler(handle); err != nil {
		return fmt.Errorf("stop watching ConfigMap %s: %w", l.Config, err)
	}
	return nil
}

// follow sets the level from the data, or the flag's if they have none. Invalid values
// are ignored and logged.
func (l *logLevel) follow(log logr.Logger, data map[string]string) {
	wanted := strings.TrimSpace(data[levelKey])
	if wanted == "" {
		wanted = l.Default
	}
	level, err := parseLevel(wanted)
	if err != nil {
		log.Error(err, "The log level stays as it is", "configMap", l.Config.String(), "key", levelKey)
		return
	}
	if before := l.Level.Level(); before != level {
		l.Level.SetLevel(level)
		log.Info("Changed the log level", "level", wanted)
	}
}
