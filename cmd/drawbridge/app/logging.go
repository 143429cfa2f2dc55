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

// parseLevel reads a log level. For zapr: V(n) is zap's level -n.
func parseLevel(level string) (zapcore.Level, error) {
	switch level {
	case "info":
		return zapcore.InfoLevel, nil
	case "debug":
		return zapcore.DebugLevel, nil
	}
	v, err := strconv.Atoi(level)
	if err != nil || v < 0 || v > maxVerbosity {
		return 0, fmt.Errorf("--log-level must be info, debug or a number from 0 to %d, not %q", maxVerbosity, level)
	}
	return zapcore.Level(-v), nil
}

// newLogger returns the program's logger, which writes to standard error, and its
// level, which may be changed at any time.
func newLogger(level, format string) (*zap.Logger, zap.AtomicLevel, error) {
	atomic := zap.NewAtomicLevel()
	parsed, err := parseLevel(level)
	if err != nil {
		return nil, atomic, err
	}
	atomic.SetLevel(parsed)
	if formats := []string{"json", "console"}; !slices.Contains(formats, format) {
		return nil, atomic, fmt.Errorf("--log-format must be json or console, not %q", format)
	}
	conf := zap.NewProductionConfig()
	conf.Encoding = format
	conf.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	conf.Level = atomic
	// To reconstruct a drain of many pods, repeated lines are needed.
	conf.Sampling = nil
	conf.DisableStacktrace = true
	log, err := conf.Build()
	if err != nil {
		return nil, atomic, fmt.Errorf("make logger: %w", err)
	}
	return log, atomic, nil
}
