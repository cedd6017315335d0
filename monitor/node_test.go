package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func aNode(key, name string, parts int) Node {
	return Node{Key: key, Name: name, Parts: parts, MostParts: parts}
}

func join(t *testing.T, root string, node Node) *Store {
	t.Helper()
	store, _, err := JoinRun(root, time.Now(), node)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// end records how a part ended.
func end(t *testing.T, store *Store, code int) {
	t.Helper()
	if err := store.WriteMeta(map[string]any{"exit": map[string]any{"code": code}}); err != nil {
		t.Fatal(err)
	}
}

// begin records that a part has begun.
func begin(t *testing.T, store *Store) {
	t.Helper()
	if err := store.WriteMeta(map[string]any{"exit": nil}); err != nil {
		t.Fatal(err)
	}
}

// old makes a run's files as old as that.
func old(t *testing.T, run string, age time.Duration) {
	t.Helper()
	then := time.Now().Add(-age)
	err := filepath.Walk(run, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, then, then)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestJoinTogether: many nodes that start at once, their clocks hours apart, end in one folder, each with a part of its
// own.
func TestJoinTogether(t *testing.T) {
	root := t.TempDir()
	const nodes = 32
	runs, parts := make([]string, nodes), make([]string, nodes)
	var started sync.WaitGroup
	for i := range nodes {
		started.Go(func() {
			clock := time.Now().Add(time.Duration(i-nodes/2) * time.Hour)
			store, node, err := JoinRun(root, clock, aNode("slurm-7.0", fmt.Sprint(i), nodes))
			if err != nil {
				t.Error(err)
				return
			}
			runs[i], parts[i] = store.ID(), filepath.Base(store.Dir)
			off := time.Duration(node.ClockOffset * float64(time.Second))
			if (off + time.Until(clock)).Abs() > time.Minute {
				t.Errorf("node %d: its clock is said to be %s off", i, off)
			}
			begin(t, store)
		})
	}
	started.Wait()
	slices.Sort(runs)
	slices.Sort(parts)
	if distinct := len(slices.Compact(runs)); distinct != 1 {
		t.Errorf("%d run folders", distinct)
	}
	if distinct := len(slices.Compact(parts)); distinct != nodes {
		t.Errorf("%d parts", distinct)
	}
	list, err := List(root)
	if err != nil || len(list) != 1 || len(list[0].Nodes()) != nodes ||
		!strings.HasSuffix(list[0].ID(), "Z-slurm-7.0") {
		t.Fatalf("listed %v, %v", list, err)
	}
	if last := list[0].Nodes()[nodes-1]; filepath.Base(last.Dir) != "node-31" || last.ID() != list[0].ID() {
		t.Errorf("the last part is %+v", last)
	}
}

// TestJoinSameName: two nodes that were given one rank do not write into one part.
func TestJoinSameName(t *testing.T) {
	root := t.TempDir()
	stores := make([]*Store, 16)
	var started sync.WaitGroup
	for i := range stores {
		started.Go(func() {
			store, _, err := JoinRun(root, time.Now(), aNode("rdzv-x", "0", 2))
			if err != nil {
				t.Error(err)
			}
			stores[i] = store
		})
	}
	started.Wait()
	var dirs []string
	for _, s := range stores {
		dirs = append(dirs, s.Dir)
	}
	slices.Sort(dirs)
	if len(slices.Compact(dirs)) != len(stores) {
		t.Errorf("parts %q", dirs)
	}
}

// TestJoinAgain: a key that comes again, and a node that comes back.
func TestJoinAgain(t *testing.T) {
	for _, unique := range []bool{false, true} {
		t.Run(fmt.Sprintf("unique %v", unique), func(t *testing.T) {
			root := t.TempDir()
			node := func(name string) Node {
				n := aNode("rdzv-100", name, 2)
				n.Unique = unique
				return n
			}
			first0, first1 := join(t, root, node("0")), join(t, root, node("1"))
			begin(t, first0)
			end(t, first1, 0)
			end(t, first0, 0)
			second1 := join(t, root, node("1"))
			if second1.ID() == first1.ID() {
				t.Error("the second run is in the folder of the first")
			}
			begin(t, second1)
			second0 := join(t, root, node("0"))
			if second0.ID() != second1.ID() {
				t.Error("the second run has two folders")
			}
			begin(t, second0)

			end(t, second1, 1) // its pod was killed and is started again, while node 0 waits for it
			back := join(t, root, node("1"))
			if back.ID() != second0.ID() || filepath.Base(back.Dir) != "node-1+2" {
				t.Errorf("node 1 came back as %s", back.Dir)
			}
			begin(t, back)
			end(t, back, 1)
			again := join(t, root, node("1"))
			if again.ID() != second0.ID() || filepath.Base(again.Dir) != "node-1+3" {
				t.Errorf("node 1 came back again as %s", again.Dir)
			}
			end(t, again, 1)
			end(t, second0, 1)
			if third := join(t, root, node("0")); third.ID() == second0.ID() {
				t.Error("the third run is in the folder of the second, whose nodes have all ended")
			}
		})
	}
}

// TestJoinStale: the folder of a run that one node never joined, and in which nothing is written any more, is not
// joined by the next run under the same key; a Slurm step's is, whenever its last node comes.
func TestJoinStale(t *testing.T) {
	for _, c := range []struct {
		unique bool
		age    time.Duration
		same   bool
	}{
		{false, time.Minute, true}, // torchrun waits 15 minutes for its nodes
		{false, time.Hour, false},
		{true, time.Hour, true},
	} {
		root := t.TempDir()
		node := aNode("rdzv-train-node-0-0.train", "0", 2)
		node.Unique = c.unique
		first := join(t, root, node)
		begin(t, first)
		old(t, first.Run, c.age)
		node.Name = "1"
		if late := join(t, root, node); (late.ID() == first.ID()) != c.same {
			t.Errorf("unique %v, after %s: %s and %s", c.unique, c.age, first.ID(), late.ID())
		}
	}
}

// TestJoinFull: nodes without ranks are named by their hosts; one more than the run can have belongs to the next.
func TestJoinFull(t *testing.T) {
	root := t.TempDir()
	a, b := join(t, root, aNode("rdzv-x", "host-a", 2)), join(t, root, aNode("rdzv-x", "host-b", 2))
	c := join(t, root, aNode("rdzv-x", "host-c", 2))
	if a.ID() != b.ID() || c.ID() == a.ID() {
		t.Errorf("%s, %s, %s", a.ID(), b.ID(), c.ID())
	}
}

// TestJoinNames: what users call their runs cannot leave the folder, nor meet another's.
func TestJoinNames(t *testing.T) {
	root := t.TempDir()
	seen := map[string]string{}
	for _, key := range []string{"../../etc", "a/b", "a_b", "a b", "häuser", strings.Repeat("x", 300),
		strings.Repeat("x", 301), "."} {
		store := join(t, root, aNode(key, "../"+key, 2))
		if rel, err := filepath.Rel(root, store.Dir); err != nil || strings.Count(rel, "/") != 1 ||
			strings.HasPrefix(rel, "..") {
			t.Errorf("%q lies in %s", key, store.Dir)
		}
		if other, taken := seen[store.ID()]; taken {
			t.Errorf("%q and %q share %s", key, other, store.ID())
		}
		seen[store.ID()] = key
		begin(t, store)
	}
	if list, err := List(root); err != nil || len(list) != len(seen) {
		t.Errorf("listed %d of %d, %v", len(list), len(seen), err)
	}
}

// TestOpenNodes: a run of several nodes is found by its name and its end; a part by its path.
func TestOpenNodes(t *testing.T) {
	root := t.TempDir()
	for name := range 2 {
		begin(t, join(t, root, aNode("slurm-12.0", fmt.Sprint(name), 2)))
	}
	for name, parts := range map[string]int{"": 2, "last": 2, "slurm-12.0": 2, "12.0": 2} {
		store, err := Open(root, name)
		if err != nil || len(store.Nodes()) != parts {
			t.Errorf("%q: %v %v", name, store, err)
		}
	}
	run, err := Open(root, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{run.Dir, run.ID() + "/node-1", filepath.Join(run.Dir, "node-1")} {
		if _, err := Open(root, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestMerge: ranks and devices keep their nodes, and the worst rank of all nodes stands for a stage.
func TestMerge(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	merged := Merge([]string{"0", "1", "2"}, []*Recording{
		{Ranks: []Rank{{Rank: 1, Memory: "cuda", Stages: []StagePeak{{Stage: "forward", Rank: 1, AllocatedBytes: 5}}}},
			Devices: []DeviceRecord{{Index: 0}}, LastSeen: at},
		nil, // never wrote anything
		{Ranks: []Rank{{Rank: 0, Memory: "cuda", Stages: []StagePeak{{Stage: "forward", Rank: 0, AllocatedBytes: 7}}}},
			Devices: []DeviceRecord{{Index: 0}}, LastSeen: at.Add(time.Second), Missing: []string{"NVML went away"}},
	})
	if len(merged.Ranks) != 2 || merged.Ranks[0].Node != "2" || merged.Ranks[1].Node != "0" || merged.Memory != "cuda" {
		t.Errorf("ranks %+v", merged.Ranks)
	}
	if len(merged.Stages) != 1 || merged.Stages[0].AllocatedBytes != 7 || merged.Stages[0].Rank != 0 {
		t.Errorf("stages %+v", merged.Stages)
	}
	if merged.Devices[1].Label() != "2:0" || !merged.LastSeen.Equal(at.Add(time.Second)) ||
		!slices.Equal(merged.Missing, []string{"node 2: NVML went away"}) {
		t.Errorf("merged %+v", merged)
	}
}
