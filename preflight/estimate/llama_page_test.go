package estimate

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// The page that derives a layer by hand says what the program says, row by row and in sum.
func TestLlamaLayerPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "llama-layer.md"))
	if err != nil {
		t.Fatal(err)
	}
	activations := pageTable(t, string(page), "| operation |")
	weights := pageTable(t, string(page), "| weights |")

	layer := llamaLayer(t)
	var kept []string
	for _, s := range layer.steps() {
		if s.saved > 0 {
			kept = append(kept, fmt.Sprint(s.saved))
		}
	}
	var told []string
	rows := activations[:len(activations)-1]
	for i := 0; i < len(rows); i++ {
		bytes := rows[i].number
		// One operation of the program keeps what stands in several rows of the page.
		for i+1 < len(rows) && joined(rows[i].name, rows[i+1].name) {
			i++
			bytes += rows[i].number
		}
		if bytes > 0 {
			told = append(told, fmt.Sprint(bytes))
		}
	}
	if got, want := strings.Join(kept, " "), strings.Join(told, " "); got != want {
		t.Errorf("kept by the operations of a layer, in order:\nprogram %s\npage    %s", got, want)
	}

	two, three := llamaOf(t, 2), llamaOf(t, 3)
	if got, want := three[Activations]-two[Activations], sumOf(t, activations); got != want {
		t.Errorf("one more layer keeps %d bytes, on the page %d", got, want)
	}
	if got, want := three[Parameters]-two[Parameters], 2*sumOf(t, weights); got != want {
		t.Errorf("one more layer has %d bytes of weights, on the page %d", got, want)
	}
}

// joined: the fp32 copy and the root are kept by one operation of the program, attention's tensors by another.
func joined(name, next string) bool {
	return strings.HasSuffix(name, "to fp32") || name == "attention" && next == name
}

type pageRow struct {
	name   string
	number int64
}

var pageNumber = regexp.MustCompile(`^\d+$`)

// pageTable reads the names and the numbers of a table, which are its first and last columns.
func pageTable(t *testing.T, page, head string) []pageRow {
	t.Helper()
	_, table, found := strings.Cut(page, head)
	if !found {
		t.Fatalf("the page has no table %q", head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []pageRow
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		if !pageNumber.MatchString(last) {
			t.Fatalf("no number at the end of %q", line)
		}
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, pageRow{name: strings.TrimSpace(cells[0]), number: n})
	}
	return rows
}

// sumOf is the last row of a table, which is the sum of those above.
func sumOf(t *testing.T, rows []pageRow) int64 {
	t.Helper()
	var sum int64
	last := rows[len(rows)-1]
	for _, row := range rows[:len(rows)-1] {
		sum += row.number
	}
	if sum != last.number {
		t.Errorf("the rows of the page are %d in sum, not %d", sum, last.number)
	}
	return last.number
}

// llamaJob is the page's case, as a user gives it.
func llamaJob(t *testing.T, layers int) *job.Job {
	t.Helper()
	config := fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
		"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": %d, "vocab_size": 128256, "tie_word_embeddings": false,
		"torch_dtype": "bfloat16"}`, layers)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	j := job.Read(job.Sources{Place: job.Elsewhere, Flags: map[string]string{
		"model": dir, "micro-batch": "1", "grad-accum": "1", "seq-len": "4096", "precision": "bf16",
		"optimizer": "adamw",
		"attention": "flash_attention_2", "method": "full", "sharding": "none", "checkpointing": "none",
		"versions": "torch=2.6.0,transformers=4.51.3",
	}})
	if len(j.Problems) > 0 {
		t.Fatal(j.Problems)
	}
	return j
}

func llamaInput(t *testing.T, layers int) Input {
	t.Helper()
	j := llamaJob(t, layers)
	return Input{Job: j, Model: j.Architecture, Hardware: Hardware{Kind: "cuda", ComputeCapability: "9.0"},
		Options: DefaultOptions()}
}

func llamaOf(t *testing.T, layers int) Components {
	t.Helper()
	e, err := Run(llamaInput(t, layers))
	if err != nil {
		t.Fatal(err)
	}
	return stageOf(t, e, Forward).Components
}

// llamaLayer is the graph of one layer.
func llamaLayer(t *testing.T) *graph {
	t.Helper()
	s, err := newScenario(llamaInput(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	return s.rankOf(0).block().layer()
}
