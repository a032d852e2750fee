"""Marks and forms: small signs, small words and endings that change what is asked; and those that do not."""

from __future__ import annotations

import pytest

from cache.guards import compare, read

REFUSED = [
    # symbols
    ("marks", "Is ✅ the approval mark?", "Is ❌ the approval mark?"),
    ("marks", "What does ⬆ mean in the report?", "What does ⬇ mean in the report?"),
    ("marks", "What is plan ★★★?", "What is plan ★?"),
    ("marks", "What is the fee in 🇫🇷?", "What is the fee in 🇩🇪?"),
    ("marks", "What does ~5 days mean?", "What does 5 days mean?"),
    ("marks", "公司的🚗能用吗?", "公司的🚲能用吗?"),
    ("marks", "What is the fee in €?", "What is the fee in £?"),
    ("marks", "What is the fee in %?", "What is the fee in ‰?"),
    # capitals
    ("marks", "What is the load in mW?", "What is the load in MW?"),
    ("marks", "What is the storage limit in MB?", "What is the storage limit in Mb?"),
    ("marks", "How is turkey imported?", "How is Turkey imported?"),
    ("marks", "What is the polish process?", "What is the Polish process?"),
    # subsections and ratios
    ("marks", "What applies under section 4(a)?", "What applies under section 4(b)?"),
    ("marks", "What is the ratio 1:2?", "What is the ratio 2:1?"),
    ("marks", "What is a 3-1 split?", "What is a 1-3 split?"),
    # Chinese aspect
    ("marks", "公司在装修吗?", "公司装修了吗?"),
    ("marks", "公司在招聘吗?", "公司招聘吗?"),
    ("marks", "费用是客户的吗?", "费用是客户吗?"),
    ("marks", "谁批准?", "批准谁?"),
    # particles
    ("forms", "Can I rent the car?", "Can I rent out the car?"),
    ("forms", "How do I sign up for the plan?", "How do I sign off on the plan?"),
    ("forms", "Who do I report to?", "Who do I report on?"),
    ("forms", "Who is insured with us?", "Who is insured against us?"),
    ("forms", "Who is liable to the client?", "Who is liable for the client?"),
    ("forms", "What do we pay for?", "What do we pay?"),
    ("forms", "Who takes over the project?", "Who takes on the project?"),
    # persons
    ("forms", "Can my boss fire me?", "Can I fire my boss?"),
    ("forms", "What did the client send us?", "What did we send the client?"),
    # voice
    ("forms", "How much was I paid?", "How much did I pay?"),
    ("forms", "Do I get paid for the training?", "Do I pay for the training?"),
    ("forms", "Who is the paying agent?", "Who is the paid agent?"),
    ("forms", "Which staff are managed?", "Which staff manage?"),
    ("forms", "Has the invoice been paid?", "Is the invoice being paid?"),
    ("forms", "Is it too late to apply?", "Is it late to apply?"),
    # the place of "only"
    ("forms", "Can managers only approve leave?", "Can only managers approve leave?"),
    ("forms", "Can I only claim meals on trips?", "Can I claim meals only on trips?"),
    # nouns
    ("forms", "Where is the test server?", "Where is the server test?"),
    ("forms", "What does the assistant manager earn?", "What does the manager's assistant earn?"),
    # question words
    ("relations", "Why should we use the cloud?", "How should we use the cloud?"),
    ("relations", "Where do I file the report?", "How do I file the report?"),
    ("families", "Must I call until the doctor answers?", "Must I call when the doctor answers?"),
    ("families", "Can I leave before the meeting ends?", "Can I leave once the meeting ends?"),
    # denied without a negator
    ("polarity", "When do we cease to pay sick leave?", "When do we pay sick leave?"),
    ("polarity", "What if I fail to file the report?", "What if I file the report?"),
    ("polarity", "Is the limit far from reached?", "Is the limit reached?"),
    ("polarity", "Is he anything but insured?", "Is he insured?"),
    ("roles", "Which manager hired Tom?", "Which manager did Tom hire?"),
]
KEPT = [
    ("Is ✅ the approval mark?", "Is the approval mark ✅?"),
    ("Is the fee 500 €?", "Is the fee €500?"),
    ("how is turkey imported?", "How is Turkey imported?"),
    ("Is the VPN down?", "Is the vpn down?"),
    ("What is the load in mW?", "What's the load in mW?"),
    ("What applies under section 4(a)?", "What does apply under section 4(a)?"),
    ("What is the ratio 1:2 for?", "What's the ratio 1:2 for?"),
    ("年假有几天?", "请问年假有几天?"),
    ("病假需要什么材料?", "病假需要什么材料呢?"),
    ("合同到期怎么办?", "合同到期了怎么办?"),
    ("公司地址在哪里?", "公司的地址在哪儿?"),
    ("工资什么时候发?", "什么时候发工资?"),
    ("How do I sign up for the plan?", "How can I sign up for the plan?"),
    ("How do I pay for parking with a card?", "How do I pay with a card for parking?"),
    ("What did the client send us?", "What did the client please send us?"),
    ("Can my boss fire me?", "May I please ask: can my boss fire me?"),
    ("Are salaries paid monthly?", "Do salaries get paid monthly?"),
    ("Who approves travel expenses?", "Travel expenses are approved by whom?"),
    ("Can only managers approve leave?", "Is it so that only managers can approve leave?"),
    ("Where is the test server?", "Where can I find the test server?"),
    ("How do I reset my password?", "How can I reset my password?"),
    ("Why is my card blocked?", "How come my card is blocked?"),
    ("Why does the server fail to start?", "Why does the server not start?"),
    ("How far from the office is the station?", "How far is the station from the office?"),
]


@pytest.mark.parametrize(("guard", "one", "other"), REFUSED)
def test_other_marks_and_forms_are_refused(guard: str, one: str, other: str) -> None:
    for verdict in (compare(read(one), read(other)), compare(read(other), read(one))):
        assert not verdict.passed
        assert verdict.name == guard


@pytest.mark.parametrize(("one", "other"), KEPT)
def test_the_same_question_passes(one: str, other: str) -> None:
    for verdict in (compare(read(one), read(other)), compare(read(other), read(one))):
        assert verdict.passed, verdict
