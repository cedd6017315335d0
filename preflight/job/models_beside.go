package job

import (
	"fmt"
	"strings"
)

// A SecondModel is one that each rank holds beside the model that the job is about.
type SecondModel struct {
	Role    string `json:"role"`    // teacher, reference, reward, critic, vae, text encoder, ...
	Name    string `json:"name"`    // "": nothing names it
	Params  int64  `json:"params"`  // parameters; 0: not known
	Trained bool   `json:"trained"` // has gradients and optimizer states of its own
	Idle    bool   `json:"idle"`    // waits in host memory while the job's model is trained
	Origin  string `json:"origin"`  // the word that names it
}

// SecondModels are all of them.
type SecondModels []SecondModel

// String lists them.
func (m SecondModels) String() string {
	var names []string
	for _, each := range m {
		names = append(names, each.String())
	}
	return strings.Join(names, ", ")
}

// String is the model in a few words.
func (m SecondModel) String() string {
	text := m.Role
	if m.Name != "" {
		text += " " + m.Name
	}
	if m.Params > 0 {
		text += fmt.Sprintf(" (%d parameters", m.Params)
	} else {
		text += " (size not known"
	}
	if m.Idle {
		text += ", in host memory meanwhile"
	}
	return text + ")"
}
