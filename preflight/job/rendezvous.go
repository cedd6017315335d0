package job

import (
	"strconv"
	"strings"
)

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
