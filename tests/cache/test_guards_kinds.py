"""Kinds, labels, plurals of their own, words taken for one another, opposites by form; and what is alike still."""

from __future__ import annotations

import pytest

from cache.guards import compare, read

REFUSED = [
    # two kinds of one thing, however the rest is worded
    ("qualifiers", "How do I close a current account?", "What are the steps for ending a fixed-term account?"),
    ("qualifiers", "How long does a card payment take?", "What is the processing time of a cheque payment?"),
    ("qualifiers", "How do I get a parking permit?", "What is the procedure for obtaining a work permit?"),
    ("qualifiers", "When is the tax return due?", "By what date must the census return be filed?"),
    ("families", "How do I block my card?", "What do I have to do to replace my card?"),
    ("families", "What should I do if my card was stolen?", "What is the procedure for a stolen phone?"),
    ("families", "Where do I pick up the van?", "Where do I drop off the van?"),
    # letters
    ("labels", "What does plan A cost?", "What does plan B cost?"),
    ("labels", "what does plan b cost?", "what does plan c cost?"),
    ("labels", "What is hepatitis A?", "What is hepatitis B?"),
    ("labels", "Do I file schedule A?", "Do I file a schedule?"),
    ("labels", "What is the fee for option A?", "What is the fee for an option?"),
    ("labels", "Who sits in block I?", "Who sits in block A?"),
    ("labels", "What is rule #A?", "What is rule #B?"),
    ("labels", "What is the price of plan a?", "What is the price of plan b?"),
    # plurals
    ("forms", "What is the customs form?", "What is the custom form?"),
    ("forms", "What is our policy on damage?", "What is our policy on damages?"),
    ("forms", "How do we handle goods?", "How do we handle good?"),
    ("forms", "Where do we keep the arms?", "Where do we keep the arm?"),
    ("forms", "How is stock valued?", "How are stocks valued?"),
    ("forms", "What is the works council?", "What is the work council?"),
    ("forms", "Who keeps the minutes of the board?", "Who keeps the minute of the board?"),
    ("forms", "What are the terms of the lease?", "What is the term of the lease?"),
    ("forms", "Which savings are taxed?", "Which saving is taxed?"),
    # words taken for one another
    ("spelling", "Can I insure the parcel?", "Can I ensure the parcel?"),
    ("spelling", "What is the morale of the team?", "What is the moral of the team?"),
    ("spelling", "Is a historic record kept?", "Are historical records kept?"),
    ("spelling", "Can we proceed with the meeting?", "Can we precede the meeting?"),
    ("spelling", "How do I defer the bill?", "How do I differ on the bill?"),
    # both and either
    ("families", "Do both parties have to sign?", "Do either of the parties have to sign?"),
    ("families", "Must both forms be sent?", "Must one of the forms be sent?"),
    # time and voice of a verb
    ("forms", "Which contracts expired in May?", "Which contracts expire in May?"),
    ("forms", "Who trained the new staff?", "Who will train the new staff?"),
    ("forms", "What has the landlord charged?", "What does the landlord charge?"),
    ("forms", "Who is owed money?", "Who owes money?"),
    ("forms", "Was Acme sued?", "Did Acme sue?"),
    # one preposition in another's place
    ("forms", "Are tips for staff taxed?", "Are tips from staff taxed?"),
    ("forms", "Do we buy from Acme?", "Do we buy for Acme?"),
    ("forms", "Can I travel with a guest?", "Can I travel as a guest?"),
    ("forms", "Who is the report for?", "Who is the report by?"),
    # opposites by their form
    ("polarity", "How is overcharging handled?", "What do we do about undercharging?"),
    ("polarity", "What does the franchisor pay?", "How much does a franchisee pay?"),
    ("polarity", "What is a short-haul ticket worth?", "How much do long-haul tickets cost?"),
    ("polarity", "Is hypertension covered?", "Does the plan pay for hypotension?"),
    ("polarity", "Can I bring a knife in checked baggage?", "Is a knife allowed in cabin baggage?"),
    ("polarity", "What is the partial refund?", "How do I get a total refund?"),
    # Chinese words of direction
    ("roles", "给客户打折吗?", "客户给打折吗?"),
    ("roles", "让员工加班可以吗?", "员工让加班可以吗?"),
    ("roles", "甲方给乙方多少钱?", "乙方给甲方多少钱?"),
    ("roles", "差旅费由谁出?", "差旅费谁由出?"),
]
KEPT = [
    ("How do I close a current account?", "What are the steps for closing a current account?"),
    ("How do I close a current account?", "How can I close my current account please?"),
    ("What are some good books to learn tax law?", "What is the best book for learning tax law?"),
    ("What ends the probation period?", "How does the probationary period end?"),
    ("How do I block my card?", "How can I freeze my card?"),
    ("My card was stolen, what should be done?", "What is the procedure for a stolen card?"),
    ("What does plan A cost?", "How much is plan A?"),
    ("What does Plan A cost?", "What does plan A cost?"),
    ("What is vitamin C good for?", "what is vitamin c good for?"),
    ("Is a class C licence enough?", "Is a licence of class C enough?"),
    ("Do I need a visa?", "Will I need a visa?"),
    ("Which form do I need?", "What form do I need?"),
    ("What is the price of a plan?", "How much is a plan?"),
    ("How long is the school term?", "How long are school terms?"),
    ("How do I open a savings account?", "How do I open a saving account?"),
    ("Which stock should I sell?", "Which stocks should I sell?"),
    ("How does the vault work?", "How the vault works?"),
    ("How many minutes is the break?", "How many minutes long is the break?"),
    ("Which forms are needed?", "Which form is needed?"),
    ("Can I insure the parcel?", "Can I get the parcel insured?"),
    ("Does the merger affect my pay?", "Is my pay affected by the merger?"),
    ("Who is the principal of the school?", "Who are the principals of the schools?"),
    ("Do both parties have to sign?", "Must both parties sign?"),
    ("Can either of us sign?", "Can one of us sign?"),
    ("Which contracts expire in May?", "Which contract expires in May?"),
    ("Who trained the new staff?", "Who has trained the new staff?"),
    ("What do I owe?", "How much do I owe?"),
    ("How is overcharging handled?", "How do we handle an overcharge?"),
    ("What does the franchisor pay?", "How much does a franchisor pay?"),
    ("How many employees work here?", "How many employees are working here?"),
    ("Are tips from staff taxed?", "Are the tips from the staff taxed?"),
    ("What are the terms of the loan?", "What are the terms for the loan?"),
    ("Is the ticket on the phone?", "Is the ticket in the phone?"),
    ("给客户打折吗?", "请问给客户打折吗?"),
    ("怎么给客户打折?", "给客户打折怎么打?"),
    ("加班费怎么算?", "加班费如何计算?"),
    ("访客可以停车吗?", "访客能停车吗?"),
    ("发票丢了怎么办?", "发票丢了该怎么办?"),
]


@pytest.mark.parametrize(("guard", "one", "other"), REFUSED)
def test_another_kind_letter_or_opposite_is_refused(guard: str, one: str, other: str) -> None:
    for verdict in (compare(read(one), read(other)), compare(read(other), read(one))):
        assert not verdict.passed
        assert verdict.name == guard, verdict


@pytest.mark.parametrize(("one", "other"), KEPT)
def test_the_same_kind_letter_or_word_passes(one: str, other: str) -> None:
    for verdict in (compare(read(one), read(other)), compare(read(other), read(one))):
        assert verdict.passed, verdict
