import argparse
try:
    from unsloth import FastLanguageModel
    HAVE = True
except ImportError:
    HAVE = False
from mytrainer import MyTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
if HAVE:
    model, tok = FastLanguageModel.from_pretrained(args.model, load_in_4bit=True)
else:
    model, tok = None, None
MyTrainer(model, args).fit()
