package estimate

import (
	"cmp"

	"oomguard/preflight/model"
)

// A quirk is where a model type's code in transformers departs from the common layer.
type quirk struct {
	softmax16     bool  // eager softmax in the dtype of the scores instead of fp32
	wideProbs     bool  // under autocast its fp32 result stays as it is until the product with v, dropout included
	scores32      bool  // eager scores computed in fp32
	noRotary      bool  // no rotary embedding: nothing of it is kept
	bothOrders    bool  // q and k come out of the rotation in another memory order, so that attention's output is copied
	expandsHeads  bool  // several shared key and value heads are repeated for every attention implementation
	broadcasts    bool  // a single key and value head is handed to fused attention as it is
	eagerOnly     bool  // there is no fused attention
	norm32        bool  // the norm works in fp32 from beginning to end
	scalesInput   bool  // RMSNorm multiplies its 16-bit input by the fp32 root instead of the fp32 copy
	pythonNorm    bool  // LayerNorm written in Python
	norm16        bool  // LayerNorm in autocast's 16 bit
	normsRotated  bool  // queries and keys are normalised after their rotation
	normAfter     bool  // attention and MLP are normalised at their output, before the residual addition
	rotary32      bool  // the rotation is computed in fp32
	ownRotary     bool  // each layer makes fp32 cosines and sines of its own
	windows       int64 // attention has a window but in one of so many layers; both kinds have a mask of their own
	alibi32       bool  // ALiBi's fp32 biases widen the scores
	weights16     bool  // the experts' weights are cast to the dtype of the router's scores
	sharedFirst   bool  // the shared expert works before the routed ones
	router32      bool  // the router works in fp32
	namesScores   bool  // the scores before the mask have a variable of their own
	returnsScores bool  // blocks hand out the attention weights, which live on through the next block
	pythonGelu    bool  // an autograd function in Python that keeps its input and needs room to differentiate
	copiesHeads   bool  // v is copied out of the fused tensor
	alwaysMasked  bool  // fused attention gets an explicit mask in any case
	wideLoss      bool  // a masked language model whose loss turns the logits to fp32
	finalDropout  bool  // dropout follows each stack's last norm
	viewsWeights  bool  // matrix products see a transposed view of the weight, which autocast does not cache
	sinks         bool  // the softmax also has a column for each head's sink, which is cut off behind it
	clampedGate   bool  // experts clamp gate and up, and multiply by a sigmoid written in Python
	everyExpert   bool  // every expert works on every token, with a weight that may be 0
	bareHeadNorm  bool  // the norm of queries and keys has no weights
	clampsScores  bool  // scores are kept from below the smallest number, by a function that keeps them
	sinusoids     bool  // the model holds its positions' sinusoids, in the weights' dtype
	maskBuffers   int64 // causal masks [positions, positions] of a byte each that the model holds: one, or one a layer (perLayer)
}

const perLayer = -1

var quirks = map[string]quirk{
	"gpt2":                 {softmax16: true, noRotary: true},
	"gpt_bigcode":          {noRotary: true, maskBuffers: 1},
	"opt":                  {noRotary: true},
	"bloom":                {noRotary: true, eagerOnly: true, namesScores: true, returnsScores: true, pythonGelu: true},
	"bert":                 {softmax16: true, wideProbs: true, noRotary: true},
	"xlm-roberta":          {softmax16: true, wideProbs: true, noRotary: true},
	"camembert":            {softmax16: true, wideProbs: true, noRotary: true},
	"roberta":              {softmax16: true, wideProbs: true, noRotary: true},
	"modernbert":           {rotary32: true, alwaysMasked: true, windows: 3, wideLoss: true},
	"distilbert":           {softmax16: true, wideProbs: true, noRotary: true},
	"gpt_neo":              {noRotary: true, eagerOnly: true, scores32: true, returnsScores: true, maskBuffers: perLayer},
	"bart":                 {softmax16: true, wideProbs: true, noRotary: true},
	"mbart":                {softmax16: true, wideProbs: true, noRotary: true},
	"pegasus":              {softmax16: true, wideProbs: true, noRotary: true},
	"xglm":                 {noRotary: true, eagerOnly: true, softmax16: true, clampsScores: true, sinusoids: true},
	"biogpt":               {softmax16: true, wideProbs: true, noRotary: true},
	"albert":               {softmax16: true, wideProbs: true, noRotary: true},
	"deberta":              {eagerOnly: true, noRotary: true, pythonNorm: true},
	"dinov2":               {softmax16: true, wideProbs: true, noRotary: true},
	"siglip":               {noRotary: true},
	"siglip_text_model":    {noRotary: true},
	"siglip2":              {noRotary: true},
	"siglip2_text_model":   {noRotary: true},
	"siglip2_vision_model": {noRotary: true},
	"internvl_vision":      {softmax16: true, wideProbs: true, noRotary: true},
	"llama4_vision_model":  {softmax16: true, rotary32: true},
	"llama4_text":          {softmax16: true, rotary32: true, normsRotated: true, bareHeadNorm: true, everyExpert: true},
	"llama4":               {softmax16: true, rotary32: true, normsRotated: true, bareHeadNorm: true, everyExpert: true},
	"t5":                   {softmax16: true, wideProbs: true, noRotary: true, scalesInput: true, finalDropout: true},
	"mt5":                  {softmax16: true, wideProbs: true, noRotary: true, scalesInput: true, finalDropout: true},
	"umt5":                 {softmax16: true, wideProbs: true, noRotary: true, scalesInput: true, finalDropout: true},
	"whisper":              {softmax16: true, wideProbs: true, noRotary: true, bothOrders: true},
	"vit":                  {noRotary: true},
	"clip":                 {noRotary: true},
	"clip_text_model":      {noRotary: true},
	"clip_vision_model":    {noRotary: true},
	"siglip_vision_model":  {noRotary: true},
	"electra":              {softmax16: true, wideProbs: true, noRotary: true},
	"deberta-v2":           {softmax16: true, wideProbs: true, eagerOnly: true, noRotary: true},
	"mpt":                  {noRotary: true, eagerOnly: true, returnsScores: true, alibi32: true},
	"deepseek_v2":          {router32: true},
	"deepseek_v3":          {router32: true},
	"gemma2":               {windows: 2},
	"gemma3_text":          {windows: 6},
	"gemma3":               {windows: 6},
	"qwen2_moe":            {weights16: true, sharedFirst: true},
	"qwen3_moe":            {weights16: true},
	"olmoe":                {weights16: true},
	"gpt_oss":              {eagerOnly: true, sinks: true, clampedGate: true, norm32: true, windows: 2, weights16: true},
	"gpt_neox":             {bothOrders: true},
	"falcon":               {softmax16: true, wideProbs: true, expandsHeads: true, broadcasts: true, copiesHeads: true, alwaysMasked: true, viewsWeights: true},
	"phi":                  {bothOrders: true},
	"stablelm":             {bothOrders: true},
	"chatglm":              {bothOrders: true},
	"persimmon":            {bothOrders: true},
	"glm":                  {bothOrders: true},
	"glm4":                 {bothOrders: true},
	"glm4_moe":             {bothOrders: true, router32: true},
	"nemotron":             {bothOrders: true, norm16: true},
	"minimax_m2":           {bothOrders: true},
	"hunyuan_v1_dense":     {normsRotated: true},
	"ernie4_5":             {rotary32: true, ownRotary: true},
	"ernie4_5_moe":         {rotary32: true, ownRotary: true, router32: true, sharedFirst: true, weights16: true},
	"granitemoe":           {weights16: true},
	"granitemoeshared":     {weights16: true},
	"gptj":                 {scores32: true},
	"codegen":              {scores32: true, copiesHeads: true},
	"phi3":                 {bothOrders: true},
	"cohere":               {pythonNorm: true, rotary32: true},
	"cohere2":              {pythonNorm: true, rotary32: true, windows: 4},
	"olmo":                 {norm32: true, rotary32: true},
	"olmo2":                {norm32: true, normAfter: true, rotary32: true},
	"olmo3":                {norm32: true, normAfter: true, rotary32: true, windows: 4},
	"exaone4":              {normAfter: true, windows: 4},
}

// quirkOf is that of a model's text, where it also reads something else.
func quirkOf(a *model.Architecture) quirk { return quirks[cmp.Or(a.TextType, a.Type)] }

// bufferBytes is what the model holds besides its weights.
func (r *rank) bufferBytes() int64 {
	if quirkOf(r.arch).sinusoids {
		return r.precision.unsharded() * (r.arch.MaxPositions + 2) * r.arch.Hidden // two more rows, as BART's positions have
	}
	n := quirkOf(r.arch).maskBuffers
	if n == perLayer {
		n = r.layers
	}
	return n * r.arch.MaxPositions * r.arch.MaxPositions
}
