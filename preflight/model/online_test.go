package model

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testHub is a hub that serves a small model under org/tiny and refuses or breaks under other names.
func testHub(t *testing.T, requests *[]*http.Request) *httptest.Server {
	t.Helper()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		*requests = append(*requests, q)
		fmt.Fprint(w, tinyLlama)
	}))
	t.Cleanup(elsewhere.Close)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		*requests = append(*requests, q)
		name, file, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/org/"), "/resolve/main/")
		switch {
		case file == "adapter_config.json" && name == "adapter":
			fmt.Fprint(w, `{"base_model_name_or_path": "org/tiny"}`)
		case file != "config.json":
			w.WriteHeader(http.StatusNotFound)
		case name == "tiny":
			fmt.Fprint(w, tinyLlama)
		case name == "moved":
			http.Redirect(w, q, elsewhere.URL+q.URL.Path, http.StatusFound)
		case name == "circle":
			http.Redirect(w, q, q.URL.Path, http.StatusFound)
		case name == "gated":
			w.WriteHeader(http.StatusForbidden)
		case name == "page":
			fmt.Fprint(w, "<html>please log in</html>")
		case name == "huge":
			w.Write(make([]byte, maxHubBytes+10))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(hub.Close)
	return hub
}

func TestHub(t *testing.T) {
	const secret = "hf_not-to-be-seen"
	var requests []*http.Request
	server := testHub(t, &requests)
	env := map[string]string{"HF_ENDPOINT": server.URL + "/", "HF_TOKEN": secret, "XDG_CACHE_HOME": t.TempDir()}
	hub, err := NewHub(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, want string }{
		{"org/tiny", ""},
		{"org/moved", ""},
		{"org/adapter", "holds an adapter"},
		{"org/circle", "redirects"},
		{"org/gated", "HF_TOKEN"},
		{"org/page", "broken JSON"},
		{"org/huge", "more than 8 MiB"},
		{"org/none", "correct the name"},
		{"../etc", "neither a folder nor a hub name"},
	} {
		folder, err := hub.Fetch(t.Context(), HubModel{Name: test.name})
		if err == nil {
			_, err = Load(folder)
		}
		if (err == nil) != (test.want == "") ||
			err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	host := strings.TrimPrefix(server.URL, "http://")
	for _, q := range requests {
		if token := q.Header.Get("Authorization"); (q.Host == host) != (token == "Bearer "+secret) {
			t.Errorf("%s%s was asked with Authorization %q", q.Host, q.URL.Path, token)
		}
	}
}

// TestHubCache asks once a day for a branch, and never again for a commit.
func TestHubCache(t *testing.T) {
	var requests []*http.Request
	server := testHub(t, &requests)
	cache := t.TempDir()
	env := map[string]string{"HF_ENDPOINT": server.URL, "XDG_CACHE_HOME": cache}
	hub, err := NewHub(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	var folder string
	for range 2 {
		if folder, err = hub.Fetch(t.Context(), HubModel{Name: "org/tiny"}); err != nil {
			t.Fatal(err)
		}
	}
	asked := len(requests) // for an adapter, then for the config
	if !strings.HasPrefix(folder, cache) || asked != 2 {
		t.Errorf("%s after %d requests", folder, asked)
	}
	old := time.Now().Add(-2 * hubFresh)
	if err := os.Chtimes(filepath.Join(folder, "config.json"), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.Fetch(t.Context(), HubModel{Name: "org/tiny"}); err != nil || len(requests) == asked {
		t.Errorf("%d requests for an old copy: %v", len(requests)-asked, err)
	}
}

func TestHubRefused(t *testing.T) {
	for _, env := range []map[string]string{
		{"HF_HUB_OFFLINE": "1"}, {"TRANSFORMERS_OFFLINE": "true"}, {"HF_ENDPOINT": "ftp://x"},
		{"HF_ENDPOINT": "huggingface.co"}, {"HF_ENDPOINT": "http://%zz"},
	} {
		if _, err := NewHub(func(name string) string { return env[name] }); err == nil {
			t.Errorf("%v: no error", env)
		}
	}
	hub, err := NewHub(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hub.Fetch(t.Context(), HubModel{Name: "org/tiny"}); err == nil ||
		!strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("without a place to keep it: %v", err)
	}
}
