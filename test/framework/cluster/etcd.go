package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// AskEtcd posts a request to the JSON gateway of etcd at an address, which [Cluster.EtcdURL] is, and
// reads its answer. The call is a path below /v3, such as kv/range. Keys and values are []byte: they
// are base64 there. Error: no answer, or one that is no success; it has etcd's words.
func AskEtcd(ctx context.Context, address, call string, request, answer any) (err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode what is asked of etcd: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v3/"+call, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read etcd's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd refused %s: %s: %s", call, resp.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read etcd's answer %s: %w", text, err)
	}
	return nil
}
