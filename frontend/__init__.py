"""The side of Octavo that faces people and programs.

It owns text: tokenizer, chat templates, detokenizer, stop strings; the HTTP server; the Python API (`LLM`,
`LLMEngine`, `AsyncLLMEngine`); the command line; and the supervisor that starts and watches every other
process. It knows requests as token ids plus sampling parameters. It does not know blocks, batches, steps or
devices, and it never imports torch.
"""
