import sys
import torch
import speechbrain as sb
from hyperpyyaml import load_hyperpyyaml


class ASR(sb.core.Brain):
    def compute_forward(self, batch, stage):
        return self.modules.enc(batch.sig)

    def compute_objectives(self, predictions, batch, stage):
        return self.hparams.ctc_cost(predictions)


if __name__ == "__main__":
    hparams_file, run_opts, overrides = sb.parse_arguments(sys.argv[1:])
    with open(hparams_file) as fin:
        hparams = load_hyperpyyaml(fin, overrides)
    brain = ASR(modules=hparams["modules"], opt_class=hparams["opt"], hparams=hparams, run_opts=run_opts)
    brain.fit(brain.hparams.epoch_counter, hparams["train"], hparams["valid"])
