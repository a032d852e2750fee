"""Ask Strongroom with OpenAI's own client; `pip install openai` is all it needs.

export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=sr_live_...
python examples/openai_client.py "How long is the notice period?"
"""

import sys

from openai import OpenAI

client = OpenAI()
model = client.models.list().data[0].id
question = {"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "How long is the notice period?"}

answer = client.chat.completions.create(model=model, messages=[question])
print(answer.choices[0].message.content)
for citation in answer.model_extra["strongroom"]["citations"]:
    print(f"  [{citation['source']}] {citation['title']}: {citation['quote']}")

print("The same as a stream:")
for chunk in client.chat.completions.create(
    model=model, messages=[question], stream=True, stream_options={"include_usage": True}
):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    elif chunk.usage:
        print(f"\n{chunk.usage.total_tokens} tokens")
