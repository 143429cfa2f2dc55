package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// SaveEtcd stops etcd, copies its folder and starts it again. It returns the copy, for
// [Cluster.RestoreEtcd].
func (c *Cluster) SaveEtcd(ctx context.Context) (string, error) {
	etcd := c.components[Etcd]
	if err := etcd.Kill(ctx); err != nil {
		return "", err
	}
	saved := filepath.Join(c.dir, "etcd-saved-"+strconv.FormatInt(realClock.Now().UnixNano(), 10))
	if err := os.CopyFS(saved, os.DirFS(c.etcdDir())); err != nil {
		return "", errors.Join(fmt.Errorf("copy etcd's folder: %w", err), etcd.Start(ctx))
	}
	return saved, etcd.Start(ctx)
}

// RestoreEtcd restores a copy as one does after a disaster: kube-apiserver is stopped, and
// starts again on the old data. All others keep their caches, whose resource versions are in
// the future now: restart those that matter.
func (c *Cluster) RestoreEtcd(ctx context.Context, saved string) error {
	for _, name := range []ComponentName{APIServer, Etcd} {
		if err := c.components[name].Kill(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.etcdDir()); err != nil {
		return fmt.Errorf("remove etcd's folder: %w", err)
	}
	if err := os.CopyFS(c.etcdDir(), os.DirFS(saved)); err != nil {
		return fmt.Errorf("restore etcd's folder: %w", err)
	}
	for _, name := range []ComponentName{Etcd, APIServer} {
		if err := c.components[name].Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) etcdDir() string { return filepath.Join(c.dir, "etcd") }
