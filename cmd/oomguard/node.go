package main

import (
	"fmt"
	"os"
	"strconv"

	"oomguard/monitor"
	"oomguard/preflight/job"
)

// placement finds out which part of a run of several nodes this is; nil: the run is ours alone. The first scheduler or
// launcher that knows decides: a Slurm step's number names one run for ever, while the id or the address of a
// rendezvous may be used again.
func placement(env environment, j *job.Job) *monitor.Node {
	for _, of := range []func(environment, job.Rendezvous) *monitor.Node{slurmStep, rendezvousByID,
		rendezvousByAddress} {
		if node := of(env, j.Rendezvous); node != nil {
			return node
		}
	}
	return nil
}

// slurmStep: srun has started us several times (srun(1), output environment variables). In a batch script there is no
// step of ours, and what runs there is one node's.
func slurmStep(env environment, r job.Rendezvous) *monitor.Node {
	number := func(name string) int {
		n, err := strconv.Atoi(env.getenv(name))
		if err != nil {
			return -1
		}
		return n
	}
	jobID, step := env.getenv("SLURM_JOB_ID"), env.getenv("SLURM_STEP_ID")
	tasks, nodes, node := number("SLURM_STEP_NUM_TASKS"), number("SLURM_STEP_NUM_NODES"), number("SLURM_NODEID")
	if jobID == "" || step == "" || tasks < 2 || node < 0 {
		return nil
	}
	n := &monitor.Node{
		Key: "slurm-" + jobID + "." + step, Unique: true, Name: strconv.Itoa(node), Rank: node, Parts: tasks,
		MostParts: tasks,
		Scheduler: "slurm", Job: jobID, Step: step, Attempt: max(number("SLURM_RESTART_COUNT"), 0),
		Hosts: env.getenv("SLURM_STEP_NODELIST"),
		Host:  env.getenv("SLURMD_NODENAME"), RunID: r.ID,
	}
	if n.Attempt > 0 {
		n.Key += fmt.Sprintf(".restart%d", n.Attempt)
	}
	if tasks > nodes { // an oomguard a task, as srun starts plain Python
		n.Name += "-task-" + env.getenv("SLURM_LOCALID")
	}
	return n
}

// rendezvousByID: the nodes were given one --rdzv-id or PET_RDZV_ID.
func rendezvousByID(env environment, r job.Rendezvous) *monitor.Node {
	if r.ID == "" {
		return nil
	}
	return met(env, r, "rdzv-"+r.ID)
}

// rendezvousByAddress: they were given nothing but where to meet, as Kubeflow's PET_MASTER_ADDR does.
func rendezvousByAddress(env environment, r job.Rendezvous) *monitor.Node {
	if r.Endpoint == "" {
		return nil
	}
	return met(env, r, "rdzv-"+r.Endpoint)
}

func met(env environment, r job.Rendezvous, key string) *monitor.Node {
	if r.MostNodes < 2 {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	n := &monitor.Node{
		Key: key, Name: host, Rank: r.NodeRank, Parts: max(r.LeastNodes, 1), MostParts: r.MostNodes, RunID: r.ID,
		Job: env.getenv("SLURM_JOB_ID"),
	}
	if n.Rank >= 0 {
		n.Name = strconv.Itoa(n.Rank)
	}
	if n.Job != "" {
		n.Scheduler = "slurm"
	}
	if env.getenv("KUBERNETES_SERVICE_HOST") != "" { // in every container of a cluster
		// a pod's host name is its own name, unless its owner gave it a stable one
		n.Scheduler, n.Pod = "kubernetes", host
		if pod := env.getenv("POD_NAME"); pod != "" {
			n.Pod = pod
		}
	}
	return n
}
