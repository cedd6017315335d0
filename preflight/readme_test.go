package preflight

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReadmeListsEveryCheck: the README's table is the list of checks, row by row.
func TestReadmeListsEveryCheck(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Checks() {
		if row := fmt.Sprintf("| `%s` | %s |", c.ID, c.Title); !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks the row %s", row)
		}
	}
}
