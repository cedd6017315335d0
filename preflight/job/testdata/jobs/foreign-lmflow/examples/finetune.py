import sys
from transformers import HfArgumentParser
from lmflow.args import AutoArguments, DatasetArguments, ModelArguments
from lmflow.datasets.dataset import Dataset
from lmflow.models.auto_model import AutoModel
from lmflow.pipeline.auto_pipeline import AutoPipeline


def main():
    pipeline_name = "finetuner"
    PipelineArguments = AutoArguments.get_pipeline_args_class(pipeline_name)
    parser = HfArgumentParser((ModelArguments, DatasetArguments, PipelineArguments))
    model_args, data_args, pipeline_args = parser.parse_args_into_dataclasses()
    finetuner = AutoPipeline.get_pipeline(pipeline_name=pipeline_name, model_args=model_args, data_args=data_args, pipeline_args=pipeline_args)
    dataset = Dataset(data_args)
    model = AutoModel.get_model(model_args)
    tuned_model = finetuner.tune(model=model, dataset=dataset)


if __name__ == '__main__':
    main()
