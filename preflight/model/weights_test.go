package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// safetensorsOf is a file with the tensors, whose names are followed by dtype and shape: "model.norm.weight BF16 8".
// Data is zeros.
func safetensorsOf(t testing.TB, tensors ...string) []byte {
	t.Helper()
	var header bytes.Buffer
	header.WriteString(`{"__metadata__": {"format": "pt"}`)
	var at uint64
	for _, line := range tensors {
		words := strings.Fields(line)
		shape, elements := []int64{}, uint64(1)
		for _, w := range words[2:] {
			var n int64
			if _, err := fmt.Sscan(w, &n); err != nil {
				t.Fatal(err)
			}
			shape, elements = append(shape, n), elements*uint64(n)
		}
		end := at + elements*storedBits[words[1]]/8
		text, err := json.Marshal(entry{Dtype: words[1], Shape: shape, Offsets: []uint64{at, end}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&header, ",%q: %s", words[0], text)
		at = end
	}
	header.WriteString("}")
	file := binary.LittleEndian.AppendUint64(nil, uint64(header.Len()))
	return append(append(file, header.Bytes()...), make([]byte, at)...)
}

// folder writes files and returns where.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDamagedFiles reads the files of testdata/safetensors; expected.json says of each what is right or wrong.
func TestDamagedFiles(t *testing.T) {
	var expected map[string]struct {
		OK                       bool
		Tensors, Elements, Bytes int64
	}
	readJSON(t, "testdata/safetensors/expected.json", &expected)
	says := map[string]string{
		"header-too-long.safetensors": "no safetensors file",
		"header-past-eof.safetensors": "runs past the end of the file",
		"truncated-data.safetensors":  "cut off", "not-json.safetensors": "not a JSON object",
		"too-short.safetensors": "only 3 bytes",
	}
	for name, want := range expected {
		w, err := ReadWeights("testdata/safetensors/" + name)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(w.Problems, "\n")
		switch {
		case want.OK:
			if got != "" || int64(len(w.Tensors)) != want.Tensors || w.Elements != want.Elements ||
				w.Bytes != want.Bytes {
				t.Errorf("%s: %d tensors, %d elements, %d bytes, problems %q; want %+v", name, len(w.Tensors),
					w.Elements, w.Bytes, got, want)
			}
		case !strings.Contains(got, says[name]) || !strings.Contains(got, name) || w.Files[0].Err == nil:
			t.Errorf("%s: problems %q do not say %q", name, got, says[name])
		}
	}
	w, err := ReadWeights("testdata/safetensors/truncated-data.safetensors")
	if err != nil || w.Elements != expected["good.safetensors"].Elements {
		t.Errorf("a file with cut off data has %d elements by its header, want %d (%v)", w.Elements,
			expected["good.safetensors"].Elements, err)
	}
}

func TestHeaderProblems(t *testing.T) {
	file := func(header string, data int) string {
		return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("\x00",
			data)
	}
	const one = `"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}`
	tests := []struct{ name, text, want string }{
		{"empty file", "", "only 0 bytes"},
		{"pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) +
			"\nsize 4976698672\n",
			"Git LFS pointer to 4976698672 bytes, not the weights: run git lfs pull"},
		{"web page", "<!DOCTYPE html><html>" + strings.Repeat(" ", 300), "no safetensors file"},
		{"a list", file(`[1]`, 0), "not a JSON object"},
		{"unfinished", file(`{`+one, 8), "broken at byte"},
		{"second object", file(`{`+one+`} {}`, 8), "something follows"},
		{"twice", file(`{`+one+`, `+one+`}`, 8), `"a" is there twice`},
		{"overlap", file(`{`+one+`, "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}`, 12), "overlap"},
		{"gap", file(`{`+one+`, "b": {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]}}`, 20), "gaps"},
		{"too much data", file(`{`+one+`}`, 9), "1 bytes follow"},
		{"size", file(`{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}`, 8),
			"8 bytes for shape [3] in F32"},
		{"negative", file(`{"a": {"dtype": "F32", "shape": [-3], "data_offsets": [0, 8]}}`, 8),
			"negative or too large"},
		{"huge", file(`{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}}`, 8),
			"negative or too large"},
		{"offsets", file(`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}`, 8),
			"data_offsets from begin to end"},
		{"no shape", file(`{"a": {"dtype": "F32", "data_offsets": [0, 8]}}`, 8), "a shape of whole numbers"},
		{"fraction", file(`{"a": {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 8]}}`, 8), `tensor "a"`},
		{"not an entry", file(`{"a": 7}`, 0), `tensor "a"`},
		{"metadata", file(`{"__metadata__": {"format": 1}}`, 0), "broken at byte"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := ReadWeights(folder(t, map[string]string{singleFile: test.text}))
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Problems) != 1 || !strings.Contains(w.Problems[0], test.want) ||
				!strings.Contains(w.Problems[0], singleFile) {
				t.Errorf("problems %q, want one that says %q", w.Problems, test.want)
			}
		})
	}
	t.Run("over the limit", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), singleFile)
		if err := os.WriteFile(path, binary.LittleEndian.AppendUint64(nil, maxHeaderBytes+1), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 2*maxHeaderBytes); err != nil {
			t.Fatal(err)
		}
		if w, err := ReadWeights(path); err != nil ||
			!strings.Contains(strings.Join(w.Problems, ""), "more than the 100000000 that safetensors reads") {
			t.Errorf("%v, %v", w, err)
		}
	})
}

func TestNewDtype(t *testing.T) {
	const header = `{"a": {"dtype": "F3_X", "shape": [8], "data_offsets": [0, 3]}}`
	text := string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + "abc"
	w, err := ReadWeights(folder(t, map[string]string{singleFile: text}))
	if err != nil || len(w.Problems) > 0 || w.Elements != 8 || w.BytesByDtype["F3_X"] != 3 {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestShards(t *testing.T) {
	first := string(safetensorsOf(t, "model.embed_tokens.weight BF16 10 4", "model.norm.weight F32 4"))
	second := string(safetensorsOf(t, "lm_head.weight BF16 10 4"))
	const index = `{"metadata": {"total_size": 176}, "weight_map": {"model.embed_tokens.weight": "a.safetensors", "model.norm.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}}`
	tests := []struct {
		name     string
		files    map[string]string
		elements int64
		problems []string
	}{
		{"whole", map[string]string{indexFile: index, "a.safetensors": first, "b.safetensors": second}, 84, nil},
		{"missing", map[string]string{indexFile: index, "a.safetensors": first}, 44,
			[]string{"b.safetensors", "is missing", "1 of the model's tensors"}},
		{"truncated", map[string]string{indexFile: index, "a.safetensors": first[:len(first)-5],
			"b.safetensors": second}, 84, []string{"a.safetensors", "cut off"}},
		{"tensor elsewhere", map[string]string{indexFile: strings.Replace(index, "lm_head", "score", 1),
			"a.safetensors": first, "b.safetensors": second}, 84,
			[]string{"b.safetensors", "1 tensors that the index places there", "score.weight"}},
		{"outside", map[string]string{indexFile: strings.Replace(index, `"b.s`, `"../b.s`, 1), "a.safetensors": first},
			44, []string{"outside the model's folder"}},
		{"single first", map[string]string{indexFile: index, singleFile: second}, 40, nil},
		{"twice", map[string]string{indexFile: index, "a.safetensors": first,
			"b.safetensors": string(safetensorsOf(t, "lm_head.weight BF16 10 4", "model.norm.weight F32 4"))},
			88, []string{`"model.norm.weight" is in two`}},
		{"no index", map[string]string{"model-00001-of-00003.safetensors": first,
			"model-00003-of-00003.safetensors": second}, 84,
			[]string{"no " + indexFile, "of 3 shards 1 are missing (2)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := ReadWeights(folder(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(w.Problems, "\n")
			if w.Elements != test.elements || (got == "") != (test.problems == nil) {
				t.Errorf("%d elements, want %d; problems %q", w.Elements, test.elements, got)
			}
			for _, want := range test.problems {
				if !strings.Contains(got, want) {
					t.Errorf("problems %q do not say %q", got, want)
				}
			}
		})
	}
	w, err := ReadWeights(folder(t, tests[0].files))
	if err != nil || !maps.Equal(w.ElementsByDtype, map[string]int64{"BF16": 80, "F32": 4}) ||
		!maps.Equal(w.BytesByDtype, map[string]int64{"BF16": 160, "F32": 16}) {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestNothingToRead(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"empty folder":     {nil, "holds neither"},
		"pickles only":     {map[string]string{"pytorch_model.bin": "x"}, "holds neither"},
		"no files named":   {map[string]string{indexFile: `{"weight_map": {}}`}, "names no file"},
		"no map":           {map[string]string{indexFile: `{}`}, "names no file"},
		"broken index":     {map[string]string{indexFile: `{"weight_map": `}, "unexpected end"},
		"another document": {map[string]string{indexFile: `[]`}, "weight_map"},
		"pointer": {map[string]string{indexFile: "version https://git-lfs.github.com/spec/v1\nsize 23950\n"},
			"git lfs pull"},
	} {
		w, err := ReadWeights(folder(t, test.files))
		if w != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want an error that says %q", name, w, err, test.want)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "nowhere"), t.TempDir()} {
		if _, err := ReadWeights(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v is not fs.ErrNotExist", path, err)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("gone", filepath.Join(dir, singleFile)); err != nil {
		t.Fatal(err)
	}
	if w, err := ReadWeights(dir); err != nil || !strings.Contains(strings.Join(w.Problems, ""), "missing") {
		t.Errorf("a broken link: %v, %v", w, err)
	}
	if w, err := ReadWeights("/dev/zero"); err != nil ||
		!strings.Contains(strings.Join(w.Problems, ""), "not a regular file") {
		t.Errorf("a device: %v, %v", w, err)
	}
}

// TestLayouts: a matrix of 64 inputs and 32 outputs as each library stores it (bitsandbytes Params4bit and Int8Params,
// AutoGPTQ's QuantLinear, AutoAWQ's WQLinear_GEMM, groups of 16), beside an embedding that is not quantised.
func TestLayouts(t *testing.T) {
	const m = "model.layers.0.mlp.up_proj."
	for name, test := range map[string]struct {
		layout  Layout
		tensors []string
		known   bool
	}{
		"plain": {Plain, []string{m + "weight F16 32 64"}, true},
		"nf4 with double quantisation": {BnB4,
			[]string{m + "weight U8 1024 1", m + "weight.absmax U8 32", m + "weight.nested_absmax F32 1",
				m + "weight.nested_quant_map F32 256", m + "weight.quant_map F32 16",
				m + "weight.quant_state.bitsandbytes__nf4 U8 90"}, true},
		"nf4 stored as bf16": {BnB4, []string{m + "weight BF16 512 1", m + "weight.absmax F32 32",
			m + "weight.quant_map F32 16",
			m + "weight.quant_state.bitsandbytes__nf4 U8 90"}, true},
		"int8": {BnB8, []string{m + "weight I8 32 64", m + "SCB F32 32", m + "weight_format U8"}, true},
		"gptq 4": {GPTQ, []string{m + "qweight I32 8 32", m + "qzeros I32 4 4", m + "scales F16 4 32",
			m + "g_idx I32 64"}, true},
		"gptq 8": {GPTQ, []string{m + "qweight I32 16 32", m + "qzeros I32 4 8", m + "scales F16 4 32",
			m + "g_idx I32 64"}, true},
		"gptq 3": {GPTQ, []string{m + "qweight I32 6 32", m + "qzeros I32 4 3", m + "scales F16 4 32",
			m + "g_idx I32 64"}, true},
		"gptq no index":  {GPTQ, []string{m + "qweight I32 8 32", m + "qzeros I32 4 4", m + "scales F16 4 32"}, true},
		"gptq no scales": {GPTQ, []string{m + "qweight I32 8 32", m + "g_idx I32 64"}, false},
		"awq":            {AWQ, []string{m + "qweight I32 64 4", m + "qzeros I32 4 4", m + "scales F16 4 32"}, true},
		"fp8":            {FP8, []string{m + "weight F8_E4M3 32 64", m + "weight_scale_inv F32 1 1"}, true},
		"packed": {PackedOther,
			[]string{m + "weight_packed I32 32 8", m + "weight_scale BF16 32 4", m + "weight_shape I64 2"}, false},
		"several layouts": {mixedLayouts, []string{m + "weight I8 32 32", m + "SCB F32 32", "x.weight F8_E4M3 32 32"},
			true},
	} {
		tensors := append(test.tensors, "model.embed_tokens.weight F16 10 64", "model.layers.0.attn.bias F32 1 1 8 8",
			"ids I64 8")
		w, err := ReadWeights(folder(t, map[string]string{singleFile: string(safetensorsOf(t, tensors...))}))
		if err != nil || len(w.Problems) > 0 {
			t.Fatalf("%s: %v %v", name, w, err)
		}
		n, ok := w.Parameters()
		if ok != test.known || ok && n != 64*32+10*64 || w.Layout() != test.layout {
			t.Errorf("%s: layout %q, %d parameters (%v)", name, w.Layout(), n, ok)
		}
	}
}

// tinyWeights are the tensors of an architecture under the names of PyTorch, in BF16.
func tinyWeights(a *Architecture) []string {
	var tensors []string
	for path, n := range a.moduleElements() {
		tensors = append(tensors, fmt.Sprintf("%s.weight BF16 %d", path, n))
	}
	slices.Sort(tensors)
	for i, t := range tensors {
		if strings.Contains(t, "embed_tokens") {
			tensors[i] = "model.embed_tokens.weight BF16 100 64"
		}
	}
	return tensors
}

func TestCompare(t *testing.T) {
	parsed := func(text string) *Architecture {
		a, err := Parse([]byte(text), "config.json")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	llama := parsed(with(`"vocab_size": 100`, `"vocab_size": 100, "torch_dtype": "bfloat16"`))
	whole := tinyWeights(llama)
	edit := func(old, new string) []string {
		out := slices.Clone(whole)
		for i := range out {
			out[i] = strings.Replace(out[i], old, new, 1)
		}
		return out
	}
	tests := []struct {
		name    string
		a       *Architecture
		tensors []string
		want    []string // one sentence each; all of it in order
	}{
		{"same", llama, whole, nil},
		{"buffers", llama, append(edit("", ""), "model.layers.0.self_attn.rotary_emb.inv_freq F32 8"), nil},
		{"without the prefix", llama, edit("model.", ""), nil},
		{"resized vocabulary", llama, edit("embed_tokens.weight BF16 100 64", "embed_tokens.weight BF16 104 64"),
			[]string{"104 rows and the config says vocab_size 100", "of another size"}},
		{"missing tensors", llama, whole[:len(whole)-1],
			[]string{"1 modules of LlamaForCausalLM are not in the files"}},
		{"one block more", llama, append(edit("", ""), "model.layers.2.input_layernorm.weight BF16 64"),
			[]string{"model.layers.2.input_layernorm"}},
		{"another size", llama, edit("o_proj.weight BF16 4096", "o_proj.weight BF16 2048"),
			[]string{"2 modules of LlamaForCausalLM are of another size"}},
		{"dtype", parsed(with(`"vocab_size": 100`, `"vocab_size": 100, "torch_dtype": "float16"`)), whole,
			[]string{"stored in bf16 and the config says fp16"}},
		{"tied head all the same", parsed(with(`"vocab_size": 100`, `"vocab_size": 100, "tie_word_embeddings": true`)),
			whole, nil},
		{"other names", llama, []string{"transformer.h.0.w BF16 10", "transformer.h.1.w BF16 10"},
			[]string{"holds 20 parameters"}},
		{"only a count", FromParams(7e9), whole, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := ReadWeights(folder(t, map[string]string{singleFile: string(safetensorsOf(t, test.tensors...))}))
			if err != nil || len(w.Problems) > 0 {
				t.Fatalf("%+v %v", w, err)
			}
			got := w.Compare(test.a)
			if len(got) != len(test.want) {
				t.Fatalf("%q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q does not say %q", got[i], want)
				}
			}
		})
	}
}

// TestCompareExperts: transformers 4 stores a Linear for each expert, 5 a stack; Mixtral 4 calls the block otherwise.
func TestCompareExperts(t *testing.T) {
	text := strings.NewReplacer(`"llama"`, `"mixtral"`, "Llama", "Mixtral", `"vocab_size"`,
		`"num_local_experts": 2, "num_key_value_heads": 4, "vocab_size"`).Replace(tinyLlama)
	a, err := Parse([]byte(text), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	var tensors []string
	for _, line := range tinyWeights(a) {
		block, isExperts := strings.CutSuffix(strings.Fields(line)[0], ".mlp.experts.weight")
		if !isExperts {
			tensors = append(tensors, strings.Replace(line, ".mlp.", ".block_sparse_moe.", 1))
			continue
		}
		for _, part := range []string{"0.w1", "0.w2", "0.w3", "1.w1", "1.w2", "1.w3"} {
			tensors = append(tensors, block+".block_sparse_moe.experts."+part+".weight BF16 64 128")
		}
	}
	w, err := ReadWeights(folder(t, map[string]string{singleFile: string(safetensorsOf(t, tensors...))}))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Compare(a); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// FuzzHeader: no file panics, and sums agree with the tensors.
func FuzzHeader(f *testing.F) {
	files, err := filepath.Glob("testdata/safetensors/*.safetensors")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(safetensorsOf(f, "a.qweight I32 8 32", "a.qzeros I32 4 4", "a.scales F16 4 32", "b.weight U8 4 1",
		"b.weight.absmax F32 1"))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := readHeader(bytes.NewReader(data), int64(len(data)))
		if err != nil && err.Error() == "" {
			t.Error("an error that says nothing")
		}
		w := &Weights{Tensors: tensors, ElementsByDtype: map[string]int64{}, BytesByDtype: map[string]int64{}}
		if w, err = w.done(); err != nil || w.Elements < 0 || w.Bytes < 0 {
			t.Errorf("%d elements, %d bytes, %v", w.Elements, w.Bytes, err)
		}
		if n, _ := w.Parameters(); n < 0 {
			t.Errorf("%d parameters", n)
		}
		w.Layout()
	})
}
