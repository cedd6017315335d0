package job

import "testing"

// A loader is one of training by what the script does with it and by the split that it names, whatever its variables
// are called.
func TestLoadersOfTraining(t *testing.T) {
	const head = "import torch\nfrom torch.utils.data import DataLoader\nopt = torch.optim.AdamW([])\n"
	const pass = "    loss = step(b)\n    loss.backward()\n    opt.step()\n"
	for name, c := range map[string]struct{ script, want string }{
		"latest": {head + "x = DataLoader(latest_ds, batch_size=4)\nfor b in x:\n" + pass, "4"},
		"contest": {head + "x = DataLoader(contest_data, batch_size=4)\nfor i, b in enumerate(x):\n" + pass,
			"4"},
		"device":    {head + "x = DataLoader(device_ds, 4)\n", "4"},
		"evaluator": {head + "x = DataLoader(dataset=evaluator_rows, batch_size=4)\n", "4"},
		"two, by the loop": {head + "a = DataLoader(rows, batch_size=4)\nb = DataLoader(others, batch_size=16)\nfor " +
			"b in tqdm(a):\n" + pass, "4"},
		"swapped names": {head + "val_loader = DataLoader(val_ds, batch_size=4)\ntrain_loader = " +
			"DataLoader(train_ds, batch_size=16)\nfor b in val_loader:\n" + pass +
			"for b in train_loader:\n    check(b)\n", "4"},
		"handed on": {head + "def train(model, batches):\n    for b in batches:\n        loss = model(b)\n        " +
			"loss.backward()\ndef check(model, batches):\n    for b in batches:\n        model(b)\n" +
			"one = DataLoader(rows, batch_size=4)\ntwo = DataLoader(others, batch_size=16)\ntrain(model, " +
			"one)\ncheck(model, batches=two)\n", "4"},
		"made in the loop": {head + "for b in DataLoader(dev_rows, batch_size=4):\n" + pass, "4"},
		"splits of a library": {head + "a = DataLoader(d['train'], batch_size=4)\nb = DataLoader(d['validation'], " +
			"batch_size=16)\n", "4"},
		"a split by name": {head + "d = load_dataset('x', split='test[:10%]')\na = DataLoader(load_dataset('x', " +
			"split='train'), batch_size=4)\nb = DataLoader(d, batch_size=16)\n", "4"},
		"nobody knows": {head + "a = DataLoader(rows, batch_size=4)\nb = DataLoader(val_rows, batch_size=16)\n",
			"unknown"},
	} {
		j := scriptJob(t, map[string]string{"train.py": c.script}, 1, versions2025, "python train.py")
		if got := j.MicroBatch.named("micro_batch"); got.Value != c.want {
			t.Errorf("%s: micro_batch %s (%s), want %s", name, got.Value, got.Origin, c.want)
		}
	}
}
