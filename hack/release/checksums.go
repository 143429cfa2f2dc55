package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	checksumsFile = "checksums.txt"
	notesFile     = "release-notes.md"
)

// writeChecksums writes the checksums of the files of a folder that are published, as
// `sha256sum --check` reads them. The notes are the text of the release. What is in folders
// below is no file of it either: the layout of the image (its archive is), and the manifest
// for krew.
func writeChecksums(folder string) error {
	entries, err := os.ReadDir(folder) // In the order of the names.
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	var lines strings.Builder
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == checksumsFile || entry.Name() == notesFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return fmt.Errorf("read what is to be summed up: %w", err)
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	if lines.Len() == 0 {
		return errors.New("there is no file to sum up in " + folder)
	}
	if err := os.WriteFile(filepath.Join(folder, checksumsFile), []byte(lines.String()), 0o644); err != nil { //nolint:gosec // Everybody may read it.
		return fmt.Errorf("write the checksums: %w", err)
	}
	return nil
}
