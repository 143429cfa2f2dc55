package app

import (
	"fmt"
	"slices"
	"strconv"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxVerbosity is the largest V-level.
const maxVerbosity = 5

// newLogger makes the program's logger, writing to standard error. For zapr: V(n)
// is zap's level -n.
func newLogger(level, format string) (*zap.Logger, error) {
	verbosity := 0
	switch level {
	case "info":
	case "debug":
		verbosity = 1
	default:
		v, err := strconv.Atoi(level)
		if err != nil || v < 0 || v > maxVerbosity {
			return nil, fmt.Errorf("--log-level must be info, debug or a number from 0 to %d, not %q", maxVerbosity, level)
		}
		verbosity = v
	}
	if formats := []string{"json", "console"}; !slices.Contains(formats, format) {
		return nil, fmt.Errorf("--log-format must be json or console, not %q", format)
	}
	conf := zap.NewProductionConfig()
	conf.Encoding = format
	conf.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	conf.Level = zap.NewAtomicLevelAt(zapcore.Level(-verbosity))
	// Repeated lines matter when a drain of many pods is reconstructed.
	conf.Sampling = nil
	conf.DisableStacktrace = true
	log, err := conf.Build()
	if err != nil {
		return nil, fmt.Errorf("make logger: %w", err)
	}
	return log, nil
}
