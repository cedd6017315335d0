package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"oomguard/launcher/files"
)

// Bounds on a visit to the hub, which a person waits for.
const (
	hubTimeout   = 15 * time.Second
	maxHubBytes  = 8 << 20 // real config.json files have a few KiB
	maxRedirects = 5
	hubFresh     = 24 * time.Hour // how long the config of a branch, which may move, is taken from our own cache
)

// A Hub fetches the config.json of models from a Hugging Face hub, and keeps it in a cache of its own. Nothing else is
// fetched, and the token goes to the hub's own host alone and into no message.
type Hub struct {
	endpoint string
	token    string
	cache    string // folder; "": none could be found
	client   *http.Client
}

// NewHub reads what huggingface_hub reads (constants.py): HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE. The cache is
// oomguard/hub in XDG_CACHE_HOME, or in ~/.cache. The error says why the hub may not or cannot be asked.
func NewHub(getenv func(string) string) (*Hub, error) {
	for _, variable := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		if word := strings.ToLower(getenv(variable)); word == "1" || word == "true" || word == "yes" || word == "on" {
			return nil, fmt.Errorf("--online, but %s is set, which forbids to ask the hub: unset one of the two",
				variable)
		}
	}
	endpoint := strings.TrimRight(cmp.Or(getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	if at, err := url.Parse(endpoint); err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, errors.New("HF_ENDPOINT is not an http or https address, such as " +
			"https://huggingface.co: correct it")
	}
	h := &Hub{
		endpoint: endpoint,
		token:    strings.TrimSpace(cmp.Or(getenv("HF_TOKEN"), getenv("HUGGING_FACE_HUB_TOKEN"))),
		client:   &http.Client{Timeout: hubTimeout, CheckRedirect: followSafely},
	}
	if base := getenv("XDG_CACHE_HOME"); filepath.IsAbs(base) {
		h.cache = filepath.Join(base, "oomguard", "hub")
	} else if home := getenv("HOME"); home != "" {
		h.cache = filepath.Join(home, ".cache", "oomguard", "hub")
	}
	return h, nil
}

// followSafely follows redirects without taking the token to another host, port or to an unencrypted connection.
func followSafely(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case first.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("a redirect from https to http")
	case next.URL.Host != first.Host:
		next.Header.Del("Authorization")
	}
	return nil
}

// Fetch brings the config.json of a model, or the adapter_config.json of an adapter, to a local folder, so that Load
// can read it. Errors say what the hub answered and what to do.
func (h *Hub) Fetch(ctx context.Context, m HubModel) (folder string, err error) {
	if m, err = m.check(); err != nil {
		return "", err
	}
	if h.cache == "" {
		return "", fmt.Errorf("model %q: no folder for what the hub sends: set XDG_CACHE_HOME or HOME", m.Name)
	}
	host := strings.NewReplacer(":", "_", "/", "_").Replace(h.endpoint[strings.Index(h.endpoint, "://")+3:])
	folder = filepath.Join(h.cache, host, "models--"+strings.ReplaceAll(m.Name, "/", "--"),
		filepath.FromSlash(m.Revision), "files")
	for _, file := range []string{"config.json", adapterFile} {
		if info, err := os.Stat(filepath.Join(folder, file)); err == nil &&
			(commitHash.MatchString(m.Revision) || time.Since(info.ModTime()) < hubFresh) {
			return folder, nil
		}
	}
	var data []byte
	for _, file := range []string{adapterFile, "config.json"} { // transformers, too, looks for an adapter first
		if data, err = h.get(ctx, m, file); err == nil {
			return folder, keep(folder, file, data)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return "", err
}

// get asks for one file; fs.ErrNotExist when the hub has none.
func (h *Hub) get(ctx context.Context, m HubModel, file string) (data []byte, err error) {
	address := fmt.Sprintf("%s/%s/resolve/%s/%s", h.endpoint, m.Name, url.PathEscape(m.Revision), file)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", m.Name, err)
	}
	request.Header.Set("User-Agent", "oomguard")
	if h.token != "" {
		request.Header.Set("Authorization", "Bearer "+h.token)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("model %q: ask the hub for %s: %w: try again, or give --model DIR (--params N gives "+
			"a lower bound)", m.Name, file, err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	switch code := response.StatusCode; {
	case code == http.StatusNotFound:
		return nil, fmt.Errorf("model %q (revision %s): %s has no %s of it (%w): correct the name, or give --model "+
			"DIR (--params N gives a lower bound)", m.Name, m.Revision, h.endpoint, file, fs.ErrNotExist)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return nil, fmt.Errorf("model %q: %s refuses (%d): it does not exist, or its licence must be accepted there "+
			"and HF_TOKEN set to a token that may read it", m.Name, h.endpoint, code)
	case code != http.StatusOK:
		return nil, fmt.Errorf("model %q: %s answers %d for %s: try again later, or give --model DIR (--params N "+
			"gives a lower bound)", m.Name, h.endpoint, code, file)
	}
	data, err = io.ReadAll(io.LimitReader(response.Body, maxHubBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("model %q: read %s from the hub: %w: try again, or give --model DIR (--params N "+
			"gives a lower bound)", m.Name, file, err)
	case len(data) > maxHubBytes:
		return nil, fmt.Errorf("model %q: what %s sends for %s has more than %d MiB, which no such file has: give "+
			"--model DIR (--params N gives a lower bound)", m.Name, h.endpoint, file, maxHubBytes>>20)
	}
	if _, err := parseObject(data, address); err != nil { // a login page, for example
		return nil, err
	}
	return data, nil
}

// keep writes a fetched file whole or not at all.
func keep(folder, name string, data []byte) error {
	to, err := files.EnsureFolder(folder)
	if err == nil {
		defer to.Close()
		err = to.Write(name, data)
	}
	if err != nil {
		return fmt.Errorf("keep what the hub sent: %w: make the folder writable, or set XDG_CACHE_HOME to one that is",
			err)
	}
	return nil
}
