"""Chat templates of small models that call tools or reason."""

HERMES = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }} <tool_call><|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# The prompt ends inside of reasoning, unless a variable says otherwise.
THINKING = HERMES + (
    "{% if add_generation_prompt %}{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}"
)
