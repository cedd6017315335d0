package estimate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// What torch.compile keeps between forward and backward, as its own partitioner cuts small models of several families
// (lab/compiled.py).
func TestSimulatedCompiled(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "simulated_compiled.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Configs []json.RawMessage `json:"configs"`
		Cases   []struct {
			familyCase
			Saved int64 `json:"saved"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var sum errorSum
	for _, c := range file.Cases {
		in := c.input(t, file.Configs[c.Config])
		in.Job.Compile = known(true)
		p, err := predict(in)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		end, _ := at(p.moments[0], forwardEnd)
		rank := p.rankOf(0)
		tape, _ := rank.tape()
		kept := end[Activations] + rank.precision.compute*rank.tokens()*rank.arch.LogitsWidth -
			tape.batch + p.castsOfHead()
		sum.add(c.Name, percent(kept, c.Saved))
		t.Logf("%-60s %+6.2f %%", c.Name, percent(kept, c.Saved))
	}
	t.Log(sum)
	if sum.mean() > 2 || sum.worst > 8 || sum.worst < -8 {
		t.Errorf("%s: want a mean of at most 2 %%, at worst 8 %%", sum)
	}
}

// castsOfHead is the 16-bit copies of the output projection, which are no activations.
func (p *prediction) castsOfHead() int64 {
	m := builder{rank: p.rankOf(0)}
	return m.castCache()
}
