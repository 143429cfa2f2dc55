package app

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestTheLogLevelFollowsTheConfigMap(t *testing.T) {
	cases := map[string]struct {
		data map[string]string
		want zapcore.Level
	}{
		"a word":                        {map[string]string{"level": "info"}, zapcore.InfoLevel},
		"a number, with a line's end":   {map[string]string{"level": "4\n"}, zapcore.Level(-4)},
		"none is the flag's":            {nil, zapcore.DebugLevel},
		"an empty one, too":             {map[string]string{"level": ""}, zapcore.DebugLevel},
		"one that is none stays before": {map[string]string{"level": "loud"}, zapcore.Level(-2)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &logLevel{Level: zap.NewAtomicLevelAt(zapcore.Level(-2)), Default: "debug"}
			l.follow(logr.Discard(), tc.data)
			if diff := cmp.Diff(tc.want, l.Level.Level()); diff != "" {
				t.Errorf("level (-want +got):\n%s", diff)
			}
		})
	}
}
