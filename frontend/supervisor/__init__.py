"""Starting, watching and ending the processes of a server.

It owns the run directory, the listening port, the children's lives and the exit status. It serves two
parents: `octavo serve`, which it supervises to its end, and a Python program whose `LLM` or `AsyncLLMEngine`
needs a scheduler and workers. It does not know requests.
"""
