import sys
import yaml
from project.engine import Engine

cfg = yaml.safe_load(open(sys.argv[2]))
Engine(cfg).run()
