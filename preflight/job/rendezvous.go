package job

import (
	"strconv"
	"strings"
)

// Rendezvous is how torchrun's agents on several nodes find each other, as far as it was given.
type Rendezvous struct {
	// LeastNodes and MostNodes differ for an elastic run; 0: unknown.
	LeastNodes, MostNodes int
	// ID is --rdzv-id, "" when it is torchrun's default ("none"), which names nothing.
	ID string
	// Endpoint is the address of the node where they meet: --rdzv-endpoint, or --master-addr and --master-port.
	Endpoint string
	// NodeRank is --node-rank; -1 when it was not given: then the rendezvous gives the ranks.
	NodeRank int
}

// rendezvous reads torchrun's options of it (torch/distributed/run.py: master_addr and master_port are the endpoint of
// the static backend, their defaults 127.0.0.1 and 29500).
func (c *torchrunCommand) rendezvous() Rendezvous {
	value := func(dest string) string {
		if _, lost := c.lost(dest); lost {
			return ""
		}
		return c.values[dest].text
	}
	r := Rendezvous{ID: value("rdzv_id"), Endpoint: value("rdzv_endpoint"), NodeRank: -1}
	if r.ID == "none" {
		r.ID = ""
	}
	if host := value("master_addr"); r.Endpoint == "" && host != "" {
		r.Endpoint = host
		if port := value("master_port"); port != "" {
			r.Endpoint += ":" + port
		}
	}
	if rank, err := strconv.Atoi(value("node_rank")); err == nil {
		r.NodeRank = rank
	}
	low, high, elastic := strings.Cut(value("nnodes"), ":")
	if !elastic {
		high = low
	}
	if least, err := strconv.Atoi(low); err == nil {
		r.LeastNodes = least
	}
	if most, err := strconv.Atoi(high); err == nil {
		r.MostNodes = most
	}
	return r
}
