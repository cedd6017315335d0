package model

// ModuleCount is what one kind of module has, over all blocks.
type ModuleCount struct {
	Path     string // the module's full name, with * for the number of the block (see Tensor.Path)
	Role     Role   // a module with weight and bias has an entry for each
	Count    int64  // how many such modules there are
	Elements int64  // scalars in all of them together
}

// Modules lists all weights by module, in the order of the forward pass; their Elements add up to Parameters. A module
// that stands in unlike blocks (dense and mixture-of-experts layers) has one entry. It is empty when only the parameter
// count is known.
func (a *Architecture) Modules() []ModuleCount {
	type key struct {
		path string
		role Role
	}
	var modules []ModuleCount
	index := map[key]int{}
	for _, u := range a.Units {
		seen := map[key]bool{} // scale and shift of a norm are one module
		for _, t := range u.Tensors {
			k := key{t.Path, t.Role}
			at, ok := index[k]
			if !ok {
				at = len(modules)
				index[k] = at
				modules = append(modules, ModuleCount{Path: t.Path, Role: t.Role})
			}
			modules[at].Elements += u.Repeat * t.Elements()
			if !seen[k] {
				modules[at].Count += u.Repeat
				seen[k] = true
			}
		}
	}
	return modules
}
