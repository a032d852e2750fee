"""Vocabulary of the questions that `benchmarks.verifier_pairs` makes, written for this purpose.

In a line, `/` parts things that must not stand for each other, `|` parts wordings of the same thing;
a line that begins with `/` goes on with the one before it.
"""

from __future__ import annotations

from typing import Final

import regex

Group = tuple[tuple[str, ...], ...]


def _groups(text: str) -> tuple[Group, ...]:
    return tuple(tuple(tuple(item.strip().split("|")) for item in line.split("/")) for line in _lines(text))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _lines(text: str) -> list[str]:
    """A line that begins with `/` goes on with the one before it."""
    return [line.strip() for line in regex.sub(r"\n\s*/", "/", text).splitlines() if line.strip()]


# Actions and the things that they are done to: first line of two the verbs, second the objects.
_DOMAINS: Final = """
close|shut down/open/verify|confirm/lock|freeze/unlock|unfreeze/rename/merge/share/link|connect
  /unlink|disconnect/deactivate/reactivate/recover|regain access to/delete|erase
my account|our account/my profile/my company account|my business account/my joint account/my child's account
  /my trial account/my savings account/my guest account/my investment account/my loyalty account
cancel|terminate|end/renew/pause|suspend|put on hold/resume|restart/upgrade/downgrade/transfer|hand over/extend
  /share/pay for
my subscription/my gym membership|my fitness club membership/my phone contract|my mobile contract
  /my internet contract|my broadband contract/my magazine subscription/my lease|my rental agreement
  /my season ticket/my maintenance contract|my service contract/my library card/my streaming plan
track|follow/cancel/return|send back/exchange|swap/reorder|order again/insure/gift wrap/collect|pick up
  /refuse|turn away/unpack
my order|my purchase/a parcel|a package/a faulty item|a defective item/a gift/a pair of shoes
  /a laptop|a notebook/a sofa|a couch/a pre-order/a bulk order/a spare part
book|reserve/cancel/change|amend|modify/confirm/extend/shorten/rebook/prepay
a hotel room/a flight/a rental car|a hire car/a meeting room|a conference room/a train seat/a tennis court
  /a ferry ticket/a dental appointment|an appointment with the dentist/an eye test/a guided tour/a haircut
  /a campsite pitch/a driving lesson/a viewing
install|set up/uninstall/update|bring up to date/configure|adjust/back up|make a backup of/restore/export/import
  /encrypt/decrypt/archive/unarchive/restart|reboot/delete/duplicate|copy/rename/share/lock/unlock
the desktop app/the mobile app|the phone app/the plugin|the add-on/the browser extension/the database
  /the printer/the router/the calendar/the mailbox|the inbox/a shared folder/a spreadsheet/a dashboard
  /a contact list/a repository|a repo/a virtual machine/a web page
enable|turn on|switch on|activate/disable|turn off|switch off|deactivate/configure|set up/test
two-step login|two-step verification/push notifications/location sharing/automatic backups/automatic payments
  /voice mail/parental controls/call forwarding/roaming/email alerts/night mode/single sign-on
  /captions|subtitles/read receipts
set up|create/cancel|stop/change|amend/dispute|contest/approve|authorise/repeat
a direct debit/a standing order/a card payment/a bank transfer|a wire transfer
  /a foreign transfer|an international transfer/a cash withdrawal/a cheque/an instalment plan|a payment plan
  /an overdraft/a mortgage/a personal loan/a student loan
increase|raise/reduce|lower|cut/check|see|view/exceed|go over/reset/remove
my credit limit/my daily withdrawal limit/my overdraft limit/my spending limit/my storage quota
  /my monthly payment/my pension contribution/my tax allowance/my data allowance/my working hours
request|apply for/approve/reject|decline|turn down/withdraw|take back/extend/record|log/shorten
annual leave|paid time off/sick leave|time off for illness/parental leave/unpaid leave
  /remote work|working from home/a pay rise|a salary increase/a promotion/an expense claim|an expense report
  /overtime/a training course/a sabbatical/a reference letter/a company car/a parking space
apply for/renew/replace/cancel|give up/translate/certify/frame
a driving licence|a driver's license/a passport/a work visa|a work permit/a student visa/a tourist visa
  /a residence permit/a birth certificate/a marriage certificate/a tax refund|a tax rebate/child benefit
  /a building permit/a fishing licence/a market stall/a disabled parking badge/an identity card|an ID card
repair|fix|mend/replace/install|fit/clean/inspect|check/remove|take out/sell/insulate/paint
a boiler/a radiator/a dishwasher/a washing machine|a washer/a fridge|a refrigerator/a roof/a toilet/a shower
  /an oven/a burglar alarm/a smoke detector|a smoke alarm/a front door/a window/a garage door/an air conditioner
  /a solar panel/a kitchen sink/a fence
take|use/stop taking|come off/mix with alcohol|drink alcohol with/store|keep/buy|purchase/crush/share
aspirin/ibuprofen/antibiotics/vitamin D/antihistamines/insulin/sleeping pills|sleeping tablets/iron supplements
  /cough syrup|cough medicine/blood pressure tablets|blood pressure pills/painkillers|pain relievers/steroids
  /birth control pills|contraceptive pills
bring|take along/leave/feed/wash/rent out|let/hire|rent/store|keep
a dog/a cat/a bicycle|a bike/a suitcase/a wheelchair/a pushchair|a stroller/my own food/my own drinks/a guitar
  /a tent/a barbecue|a grill/a surfboard/a drone/a rabbit
invite|add/remove/promote/demote/block/unblock/pay/train/report/mute/unmute
a user/a guest/an administrator|an admin/a contractor/a supplier|a vendor/a new employee|a new hire/a manager
  /a customer/a team member|a colleague/a moderator/a landlord/a tenant/a witness
write|draft/sign/submit|file|hand in/withdraw/correct|fix/download/print/translate/appeal
a complaint/a tax return/an insurance claim/a lease agreement/a will/a job application/an invoice
  /a purchase order/a credit note/a timesheet/a privacy request/a cover letter/a thesis/a patent
grow/cook/freeze/eat|consume/wash/peel/harvest/plant
tomatoes/potatoes/rice/mushrooms/carrots/salmon/chicken|chicken breast/lentils/pumpkin/strawberries/spinach/eggs
  /mussels
learn/teach/play/quit|give up/practise/enjoy
the piano/the guitar/chess/French/Spanish/programming|coding/swimming/yoga/drawing/public speaking/golf/statistics
"""

_PARSED: Final = _groups(_DOMAINS)
DOMAINS: Final[tuple[tuple[Group, Group], ...]] = tuple(zip(_PARSED[0::2], _PARSED[1::2], strict=True))

# Things with a price, a length, conditions and opening hours.
THINGS: Final = _groups("""
    car insurance|motor insurance/home insurance|house insurance/travel insurance/pet insurance/life insurance
  /health insurance|medical insurance/bicycle insurance
    the monthly pass/the annual pass|the yearly pass/the day ticket|the day pass/the weekend pass
  /the family ticket/the student ticket/the group ticket
    the basic plan/the standard plan/the premium plan/the enterprise plan/the family plan/the free plan
  /the student plan
    express delivery|express shipping/standard delivery|standard shipping
  /international delivery|overseas delivery/same-day delivery/delivery to a pick-up point
    a single room/a double room/a family room/a suite/a room with a sea view/an apartment
    a savings account/a current account|a checking account/a fixed deposit|a term deposit/a business account
  /a credit card/a debit card/a personal loan/a car loan/a mortgage
    a first class ticket/a second class ticket/a return ticket|a round trip ticket
  /a one-way ticket|a single ticket/a sleeper ticket
    hand luggage|cabin baggage|carry-on bags/checked luggage|hold baggage|checked bags/sports equipment
  /a musical instrument/a child seat
    the breakfast buffet/the lunch menu/the set dinner/the children's menu|the kids' menu/the wine pairing
  /the tasting menu
    an oil change/a tyre change|a tire change/a brake inspection|a brake check/a full service/a car wash
  /a wheel alignment
    a haircut/a beard trim/a hair colouring/a manicure/a massage/a facial
    a blood test/an X-ray/a flu shot|a flu vaccination|a flu jab/a dental cleaning
  /an eye examination|an eye exam/a physiotherapy session
    the laptop stand/the wireless mouse/the noise-cancelling headphones/the external hard drive/the webcam
  /the docking station
    the swimming course/the cooking class/the language course/the first aid course/the driving course/the yoga class
    electricity/natural gas/drinking water/district heating/mobile data
    the warranty|the guarantee/the deposit/the service charge/the late fee|the late payment fee
  /the cancellation fee/the booking fee/the exchange rate
    parental leave/sick leave/annual leave/bereavement leave/unpaid leave
    the museum/the library/the swimming pool|the pool/the post office/the pharmacy|the chemist/the garden centre
  /the town hall/the zoo
""")

PLACES: Final = _words("""
    London Paris Berlin Madrid Rome Vienna Prague Dublin Lisbon Warsaw Oslo Helsinki Athens Brussels Budapest
    Boston Chicago Denver Seattle Toronto Montreal Sydney Melbourne Tokyo Seoul Mumbai Delhi Cairo Nairobi Lima
    Bogota Leeds Bristol Glasgow Cardiff York Oxford Hamburg Munich Zurich Geneva Milan Naples Porto Lyon Nice
""")
COUNTRIES: Final = _words("""
    Germany France Spain Italy Portugal Austria Poland Norway Sweden Finland Denmark Ireland Scotland Wales
    Greece Turkey Egypt Kenya Nigeria India China Japan Korea Vietnam Thailand Australia Canada Mexico Brazil
    Argentina Chile Peru Iceland Hungary Romania Croatia Belgium Switzerland
""")
CAPITALS: Final = ("capital city", "population", "official language", "currency", "national anthem", "time zone")
FIRST_NAMES: Final = _words("""
    Anna Ben Carla David Emma Felix Grace Hugo Irene Jack Karen Liam Maria Noah Olivia Peter Rosa Sam Tina
    Victor Wendy Paul Laura Mark Nina Oscar Julia Kevin Sarah Thomas
""")
LAST_NAMES: Final = _words("""
    Miller Smith Jones Brown Taylor Wilson Clark Lewis Walker Hall Young King Wright Green Baker Adams Nelson
    Carter Mitchell Turner Parker Collins Morris Rogers Cook Bell Ward Gray Hughes Price
""")
COMPANIES: Final = _words("""
    Google Apple Amazon Netflix Tesla Toyota Siemens Nestle Samsung Sony Intel Oracle Nike Adidas Ikea Spotify
    Boeing Airbus Vodafone Unilever PayPal Visa Lufthansa Ryanair Fiat Philips
""")
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January", "February", "March", "April", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
SMALL: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

# Qualifiers behind a question; of one line only one holds.
SCOPES: Final = _groups("""
    for children|for kids/for adults/for students/for pensioners|for senior citizens/for pregnant women
  /for new customers/for existing customers/for members/for non-members/for small businesses/for charities
  /for teachers/for babies
    in winter|during winter/in summer|during the summer/on weekends|at the weekend/on weekdays|on working days
  /on public holidays|on bank holidays/at night/in the morning/in the afternoon/during the school holidays
  /before noon/after 6pm
    online|on the website/by phone|over the phone/by post|by mail/in person/in a branch|at a branch
  /in the app|with the app/by email/at the airport/through an agent
    with a credit card|by credit card/in cash|with cash/by bank transfer/with a voucher|with a gift card
  /in instalments/with PayPal/in a foreign currency
    without a receipt/with a receipt/without a contract/without a deposit/with a deposit/without a password
  /with a partner/with a group/alone|by myself
    abroad|overseas/at home/at work/at school/outside the EU/inside the EU/in the city centre/in the countryside
    as a freelancer|as a self-employed person/as an employee/as a landlord/as a tenant/as a student/as a parent
  /as a foreigner/as a manager
    on a Mac/on Windows/on Linux/on an iPhone/on an Android phone/on a tablet
    after an accident/after an operation|after surgery/during pregnancy|while pregnant/while driving
  /before a flight/after childbirth/during the probation period/after retirement
    with one child/with two children/with a baby/with a disability/with diabetes/with asthma/with a broken leg
""")

# Adjectives in front of a thing; of one line only one holds, and none is not the same as one.
QUALIFIERS: Final = _groups("""
    personal|private/corporate|company/joint/second/temporary/permanent/lost/stolen/expired/damaged
  /used|second-hand/new/old/international/domestic/digital/paper/emergency/shared
    large|big/small|little/heavy/light/cheap|inexpensive/expensive/antique/electric/portable/fragile/organic/frozen
""")
ROLES: Final = (
    ("CEO", "chief executive", "boss"),
    ("finance director", "CFO", "head of finance"),
    ("founder",),
    ("spokesperson", "press officer"),
    ("chair of the board", "chairperson"),
    ("owner",),
    ("largest competitor",),
    ("largest shareholder",),
)
FILLERS_BEFORE: Final = (
    "hi, ", "hello ", "hey, ", "please, ", "quick question: ", "um ", "er ", "so ", "good morning, ", "Hi there! ",
    "okay so ", "sorry, ", "I was wondering, ", "just checking, ",
)  # fmt: skip
FILLERS_AFTER: Final = (
    " please", " thanks", " thank you", ", many thanks", " pls", ", cheers", " :)", "!!", "??", " ...", " exactly?",
    " again?",
)  # fmt: skip
