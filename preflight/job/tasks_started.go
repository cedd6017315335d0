package job

// tasks are the processes that srun or mpirun starts. A launcher behind them starts its own ranks in each; a script
// becomes a rank.
type tasks struct {
	word           string // srun, mpirun; "" when there is none
	nodes, perNode Setting[int]
	world          Setting[int]
}

// offer makes the tasks the ranks of the job: of a script that joins them itself.
func (t *tasks) offer(j *Job) {
	settle := func(set *Setting[int], from Setting[int]) {
		if from.Known {
			set.Offer(from.Value, from.Origin)
		} else {
			set.Unknown(from.Origin)
		}
	}
	settle(&j.NNodes, t.nodes)
	settle(&j.NProc, t.perNode)
	if t.world.Known {
		j.WorldSize.Offer(t.world.Value, t.world.Origin)
	}
}
