"""The meanings of a question and their wordings, for `benchmarks.verifier_pairs`.

Each frame is one intention; its lines are wordings of the same question. `{v}` is a verb, `{g}` its gerund, `{p}` its
participle, `{o}` a thing, `{a}` and `{b}` places or names, `{n}` a number. No two frames of a table share an answer.
"""

from __future__ import annotations

from typing import Final

Frames = dict[str, tuple[str, ...]]


def _frames(text: str) -> Frames:
    found: Frames = {}
    name = ""
    for line in (line.strip() for line in text.strip().splitlines()):
        if line.startswith("#"):
            name = line[1:].strip()
            found[name] = ()
        elif line:
            found[name] = (*found[name], line)
    return found


ACTION: Final = _frames("""
    #how
    How do I {v} {o}?
    How can I {v} {o}?
    How to {v} {o}?
    How would I go about {g} {o}?
    What's the way to {v} {o}?
    What is the procedure for {g} {o}?
    What's the process to {v} {o}?
    What steps do I have to follow to {v} {o}?
    I want to {v} {o}, what do I need to do?
    I'd like to {v} {o}. How does that work?
    Can you tell me how to {v} {o}?
    Could you explain how I {v} {o}?
    What do I do if I want to {v} {o}?
    Please help me {v} {o}
    {g} {o} - how does it work?
    How does one {v} {o}?
    #may
    Can I {v} {o}?
    Am I allowed to {v} {o}?
    Is it permitted to {v} {o}?
    Is it possible to {v} {o}?
    Is {g} {o} allowed?
    Is it OK to {v} {o}?
    May I {v} {o}?
    Would it be possible for me to {v} {o}?
    Do you let people {v} {o}?
    #may not
    Is it forbidden to {v} {o}?
    Is {g} {o} prohibited?
    Am I not allowed to {v} {o}?
    Is {g} {o} against the rules?
    #cost
    How much does it cost to {v} {o}?
    What does it cost to {v} {o}?
    What do you charge to {v} {o}?
    What's the price for {g} {o}?
    How expensive is it to {v} {o}?
    What is the fee for {g} {o}?
    How much will I pay to {v} {o}?
    What would I have to pay if I wanted to {v} {o}?
    #free
    Is it free to {v} {o}?
    Can I {v} {o} for free?
    Can I {v} {o} without paying?
    Does it cost nothing to {v} {o}?
    #long
    How long does it take to {v} {o}?
    How much time does it take to {v} {o}?
    How many days does {g} {o} take?
    What's the time needed for {g} {o}?
    How quickly can {o} be {p}?
    #when
    When can I {v} {o}?
    What is the earliest date I can {v} {o}?
    How soon can I {v} {o}?
    From when am I able to {v} {o}?
    #deadline
    By when do I have to {v} {o}?
    What's the deadline for {g} {o}?
    What is the latest date to {v} {o}?
    Until when can I {v} {o}?
    When is it too late to {v} {o}?
    #documents
    What documents do I need to {v} {o}?
    Which papers are required to {v} {o}?
    What paperwork is needed for {g} {o}?
    What do I have to bring to {v} {o}?
    #who
    Who can {v} {o}?
    Who is allowed to {v} {o}?
    Who has permission to {v} {o}?
    Which people may {v} {o}?
    #who does
    Who can {v} {o} for me?
    Who should I call to {v} {o}?
    Who do I contact to {v} {o}?
    I'm looking for somebody to {v} {o}, who do I ask?
    #where
    Where can I {v} {o}?
    Where do I go to {v} {o}?
    At which place can I {v} {o}?
    What's the right place to {v} {o}?
    #why not
    Why can't I {v} {o}?
    Why am I unable to {v} {o}?
    I cannot {v} {o}, what is the reason?
    What stops me from {g} {o}?
    How come it won't let me {v} {o}?
    #should
    Should I {v} {o}?
    Is it a good idea to {v} {o}?
    Is it advisable to {v} {o}?
    Would you recommend {g} {o}?
    #should not
    Should I avoid {g} {o}?
    Should I not {v} {o}?
    Is it a bad idea to {v} {o}?
    Would you advise against {g} {o}?
    #must
    Do I have to {v} {o}?
    Must I {v} {o}?
    Is it mandatory to {v} {o}?
    Am I required to {v} {o}?
    Is {g} {o} compulsory?
    #if
    What happens if I {v} {o}?
    What will happen when I {v} {o}?
    What are the consequences of {g} {o}?
    What follows if {o} is {p}?
    #if not
    What happens if I don't {v} {o}?
    What will happen when I do not {v} {o}?
    What are the consequences of not {g} {o}?
    What if I never {v} {o}?
    #benefits
    What are the benefits of {g} {o}?
    What are the advantages of {g} {o}?
    What are the pros of {g} {o}?
    What speaks for {g} {o}?
    #drawbacks
    What are the drawbacks of {g} {o}?
    What are the disadvantages of {g} {o}?
    What are the cons of {g} {o}?
    What are the risks of {g} {o}?
    #before
    What should I do before I {v} {o}?
    What do I need to do before {g} {o}?
    How do I prepare for {g} {o}?
    #after
    What should I do after I {v} {o}?
    What do I need to do after {g} {o}?
    What comes next once I {v} {o}?
    #often
    How often can I {v} {o}?
    How many times may I {v} {o}?
    How frequently can I {v} {o}?
    #cheapest
    What's the cheapest way to {v} {o}?
    How can I {v} {o} for the least money?
    What is the least expensive way to {v} {o}?
    #fastest
    What's the fastest way to {v} {o}?
    What is the quickest way to {v} {o}?
    How can I {v} {o} as quickly as possible?
""")

THING: Final = _frames("""
    #price
    How much is {o}?
    How much does {o} cost?
    What does {o} cost?
    What's the price of {o}?
    What do you charge for {o}?
    How expensive is {o}?
    What will I pay for {o}?
    What are your rates for {o}?
    Tell me the price of {o}
    #included
    What does {o} include?
    What's included in {o}?
    What does {o} cover?
    What is covered by {o}?
    What comes with {o}?
    What do I get with {o}?
    #excluded
    What does {o} not include?
    What's not included in {o}?
    What isn't covered by {o}?
    What is excluded from {o}?
    #offer
    Do you offer {o}?
    Do you have {o}?
    Is {o} available?
    Can I get {o} from you?
    #refund
    Can I get a refund for {o}?
    Is {o} refundable?
    Do I get my money back for {o}?
    Will you refund {o}?
    #discount
    Is there a discount on {o}?
    Do you give a discount for {o}?
    Can I get {o} at a reduced price?
    Can I get {o} cheaper?
    #compare
    Which provider of {o} is the best?
    Who offers the best {o}?
    Where do I find the best {o}?
    #conditions
    What are the conditions for {o}?
    What are the terms of {o}?
    Which rules apply to {o}?
    #tax
    Is {o} taxable?
    Do I pay tax on {o}?
    Is there tax on {o}?
    #maximum
    What is the maximum for {o}?
    What's the upper limit for {o}?
    What is the most I can have for {o}?
    #minimum
    What is the minimum for {o}?
    What's the lower limit for {o}?
    What is the least I can have for {o}?
    #need
    Do I need {o}?
    Is {o} necessary?
    Do I really have to have {o}?
    Is {o} required?
    #who entitled
    Who is entitled to {o}?
    Who can get {o}?
    Who qualifies for {o}?
    Who is eligible for {o}?
    #who not
    Who is not entitled to {o}?
    Who cannot get {o}?
    Who doesn't qualify for {o}?
    #difference
    What is {o}?
    Can you explain what {o} is?
    What is meant by {o}?
    #worth
    Is {o} worth it?
    Is {o} worth the money?
    Is it worth paying for {o}?
""")

PLACED: Final = _frames("""
    #ride
    How do I get from {a} to {b}?
    How can I travel from {a} to {b}?
    What's the way from {a} to {b}?
    How do I get to {b} from {a}?
    Starting in {a}, how do I reach {b}?
    #far
    How far is it from {a} to {b}?
    What's the distance from {a} to {b}?
    How many kilometres is {b} from {a}?
    #flight time
    How long is the flight from {a} to {b}?
    How long does it take to fly from {a} to {b}?
    What's the flight time from {a} to {b}?
    #flight price
    How much is a flight from {a} to {b}?
    What does it cost to fly from {a} to {b}?
    What's the price of a flight from {a} to {b}?
    #first
    When is the first train from {a} to {b}?
    What time does the first train leave {a} for {b}?
    When does the earliest train from {a} to {b} go?
    #last
    When is the last train from {a} to {b}?
    What time does the last train leave {a} for {b}?
    When does the final train from {a} to {b} go?
    #move
    How do I migrate my data from {a} to {b}?
    I'm moving my data from {a} to {b}, how does that work?
    What's the way to move data from {a} to {b}?
    #transfer
    Can I transfer a booking from {a} to {b}?
    Is it possible to move a booking from {a} to {b}?
""")

NAMED: Final = _frames("""
    #capital
    What is the {k} of {c}?
    What's {c}'s {k}?
    Which {k} does {c} have?
    Tell me the {k} of {c}
    {c}: what is its {k}?
    #visa
    Do I need a visa for {c}?
    Is a visa required to enter {c}?
    Can I go to {c} without a visa?
    Do I have to get a visa to travel to {c}?
    #vaccination
    Which vaccinations do I need for {c}?
    What shots are recommended for {c}?
    What jabs should I have before going to {c}?
    #weather
    When is the best time to visit {c}?
    What's the best season to go to {c}?
    In which month should I visit {c}?
    #ship
    Do you ship to {c}?
    Do you deliver to {c}?
    Can I get my order sent to {c}?
    #role
    Who is the {r} of {m}?
    Who is {m}'s {r}?
    What's the name of the {r} of {m}?
    Do you know who the {r} of {m} is?
    #founded
    When was {m} founded?
    In which year was {m} started?
    How old is {m} as a company?
    #stock
    What's the share price of {m}?
    How much is a share of {m}?
    What does {m} stock cost?
    #reach
    How do I reach {x}?
    How can I contact {x}?
    How do I get in touch with {x}?
    What's the best way to get hold of {x}?
    #email
    What is {x}'s email address?
    What's the email address of {x}?
    At which email address do I reach {x}?
    #report
    Who does {x} report to?
    Who is {x}'s manager?
    Who is the boss of {x}?
    #reports
    Who reports to {x}?
    Who works for {x}?
    Whose manager is {x}?
""")

NUMBERED: Final = _frames("""
    #lane
    Is there a free bowling lane for {n} people at {t}?
    Can {n} of us play bowling at {t}?
    Could I book a bowling lane at {t} for {n} persons?
    #day
    Does the clinic see patients on {d}?
    Can I come to the clinic on {d}?
    Is the clinic open to patients on {d}s?
    #day from
    From what time is the reception staffed on {d}?
    When does the reception start work on {d}?
    At what hour does the reception begin on {d}?
    #day until
    Until what time is the reception staffed on {d}?
    When does the reception finish work on {d}?
    At what hour does the reception end on {d}?
    #bus
    Does a bus leave at {t}?
    Is there a bus that goes at {t}?
    Can I catch a bus at {t}?
    #class
    What does the yoga class at {t} on {d} cost?
    How much is yoga on {d} at {t}?
    What's the price of the {t} yoga class on {d}?
    #invoice
    Has invoice {i} been paid?
    Was invoice {i} settled?
    What's the payment status of invoice {i}?
    #ticket
    Who is working on ticket {i}?
    Which agent handles ticket {i}?
    To whom is ticket {i} assigned?
    #gate
    Which gate does flight {i} leave from?
    What's the gate of flight {i}?
    From what gate does {i} depart?
    #weight
    Can the lift carry more than {k} kg?
    Is a load above {k} kg too much for the lift?
    May we put over {k} kilograms in the lift?
    #mail
    How much is a parcel of {n} kg?
    What do I pay to send {n} kilograms?
    What's the postage for {n}kg?
    #tank
    How far can I drive with {n} litres of petrol?
    What distance does the car do on {n} litres?
    How many kilometres do I get from {n} l of petrol?
    #age
    Can a {n}-year-old drive a car?
    Is a person aged {n} allowed to drive a car?
    Is it legal to drive a car at {n}?
    #school
    Which school form is a {n}-year-old in?
    What year of school do children of {n} attend?
    At {n} years old, what school year is my child in?
    #version
    What changed in version {n}.2?
    Which changes came with release {n}.2?
    What's different in v{n}.2?
    #year
    Who won the world cup in {y}?
    Which country was world champion in {y}?
    Who were the world cup winners of {y}?
    #budget
    What was the training budget in {y}?
    How much could be spent on training in {y}?
    How big was the {y} training budget?
    #rent
    Is the invoice due on {n} {e}?
    Do I have to pay the invoice by {n} {e}?
    Must the invoice be settled by the {n}th of {e}?
    #drops
    Can I use {n} drops a day?
    Is it safe to use {n} drops per day?
    Are {n} drops daily OK?
    #session
    What's the fee for a {n}-hour photo session?
    How much do you take for {n} hours of photography?
    What will a photo session of {n} hours set me back?
    #range
    Is the room big enough for more than {k} guests?
    Do over {k} guests fit in the room?
    Can the room hold more than {k} people?
    #degrees
    What is {k} degrees Celsius in Fahrenheit?
    {k} celsius to fahrenheit
    How many Fahrenheit are {k} degrees Celsius?
    #miles
    What is {k} miles in kilometres?
    {k} miles to km
    How many kilometres are {k} miles?
    #notice
    What notice do I have to give after {n} months in the job?
    How long is my notice period if I have been here for {n} months?
    After {n} months with you, how much notice must I give?
""")
