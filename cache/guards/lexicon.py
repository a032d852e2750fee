"""The word lists behind the guards: data, versioned by `cache.guards.RULES_REVISION`.

English words are lower-case, after contractions are spelled out. A change here changes which answers are served,
so it needs a new revision.
"""

from __future__ import annotations

from typing import Final


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    """`a/b c/d` -> both directions of each pair."""
    single = [tuple(pair.split("/")) for pair in text.split()]
    return frozenset((a, b) for x, y in single for a, b in ((x, y), (y, x)))


EN_FUNCTION: Final = _set("""
    a an the this that these those some any i you he she it we they me him her us them my your his its our their
    mine yours one's is are was were be been being am do does did done doing have has had having can could will
    would shall should may might must to of in on at by for from with about into over under after before between
    through during against as than then and or but if when while where why how what which who whom whose there
    here so such very too also just get gets got out up down off not no s t d ll it's each both per upon within
    myself yourself itself ourselves themselves want wants need needs let
""")

# Frequent short words of other Latin-script languages that are not English words.
FOREIGN_FUNCTION: Final = (
    _set("""
    der die das den dem des ein eine einen einem einer eines und oder ist sind nicht wie wer warum wann wo wird
    kann ich du er sie wir ihr mein meine für mit von zu zum zur auf im bei nach über welche welcher welches
    le la les un une des du de et est sont ne pas que qui quoi où quand comment pourquoi je tu il elle nous vous
    mon ma mes pour avec sur dans quel quelle quels quelles au aux ce cette
    el los las una y es son no qué quién dónde cuándo cómo por para con mi mis su sus del al cuál cuáles
    lo gli di che chi dove come perché sono non per nel della dello il ho
    o os as um uma não quem onde quando porque com meu minha seu sua na nos nas ao
    de het een en zijn niet wat wie waar hoe waarom mijn voor met van naar op kan ik jij hij zij wij
    och är inte vad vem var hur det som på av jeg er ikke hvad hvem hvor hvordan
    ve bir bu ne nasıl nerede kim için ile mi mı
    nie jest czy jak gdzie kto co dla się na
""")
    - EN_FUNCTION
)

CONTRACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "can't": ("can", "not"),
    "cannot": ("can", "not"),
    "won't": ("will", "not"),
    "shan't": ("shall", "not"),
    "ain't": ("is", "not"),
    "dont": ("do", "not"),
    "doesnt": ("does", "not"),
    "didnt": ("did", "not"),
    "isnt": ("is", "not"),
    "cant": ("can", "not"),
    "wont": ("will", "not"),
    "i'd": ("i", "would"),
    "whats": ("what",),
    "what's": ("what",),
    "where's": ("where",),
    "when's": ("when",),
    "who's": ("who",),
    "how's": ("how",),
    "it's": ("it",),
    "that's": ("that",),
    "there's": ("there",),
}

# Forms that no ending gives away, to their base.
IRREGULAR: Final[dict[str, str]] = {
    form: base
    for base, *forms in (
        line.split()
        for line in """
        keep kept
        take took taken
        sell sold
        buy bought
        understand understood
        give gave given
        get got gotten
        make made
        send sent
        pay paid
        lose lost
        leave left
        find found
        write wrote written
        choose chose chosen
        break broke broken
        steal stole stolen
        drive drove driven
        see saw seen
        know knew known
        tell told
        teach taught
        catch caught
        bring brought
        hold held
        build built
        spend spent
        win won
        begin began begun
        hear heard
        meet met
        forget forgot forgotten
        eat ate eaten
        speak spoke spoken
        wear wore worn
        throw threw thrown
        show shown
        child children
        woman women
        man men
        person people
        """.strip().splitlines()
    )
    for form in forms
}

# Words that change nothing about the answer: politeness, hedges and emphasis.
EN_FILLERS: Final = _set("""
    hi hello hey hiya please thanks thank cheers um uh er kindly actually really truly indeed literally basically
    simply somehow currently possible possibly exactly team wonder wondering tell know explain show think according
""")
EN_FILLER_PHRASES: Final[tuple[tuple[str, ...], ...]] = tuple(
    tuple(phrase.split())
    for phrase in (
        "in fact",
        "many thanks",
        "thanks in advance",
        "quick question",
        "quick one",
        "just wondering",
        "is it possible to",
        "i would like to",
        "i would like to know",
        "could you tell me",
        "can you tell me",
        "do you know",
        "at the moment",
    )
)
ZH_FILLERS: Final = frozenset("的了吗呢吧啊请问一下是在")

# Counted by parity. An inherently negative verb counts too, so no antonym pair below may hold one of these.
EN_NEGATORS: Final = _set("""
    not no never without none nobody nothing nowhere nor neither hardly barely avoid avoids avoiding stop stops
    stopping prohibit prohibits prohibited prohibition ban bans banned forbid forbids forbidden prevent prevents
    preventing except excluding exclude excludes excluded illegal illegally unlawful unlawfully lack lacks lacking
    refuse refuses refused refusing decline declines declined reject rejects rejected rejecting deny denies denied
""")
ZH_NEGATORS: Final = (
    "不",
    "没",
    "沒",
    "無",
    "无",
    "非",
    "勿",
    "未",
    "别",
    "別",
    "禁止",
    "避免",
    "停止",
    "拒绝",
    "拒絕",
)
# Chinese words that hold a negator's character without negating; "不" also forms yes-no questions ("能不能").
ZH_NO_NEGATION: Final = (
    "能不能", "可不可以", "是不是", "有没有", "有沒有", "会不会", "會不會", "要不要", "好不好", "对不起", "對不起",
    "不同", "区别", "區別", "分别", "分別", "类别", "類別", "级别", "級別", "性别", "性別", "特别", "特別", "差别",
    "非常", "未来", "未來", "不过", "不過", "不仅", "不僅", "别人", "別人", "非洲", "识别", "識別", "无线", "無線",
)  # fmt: skip

EN_ANTONYMS: Final = _pairs("""
    more/less more/fewer most/least increase/decrease increase/reduce raise/lower rise/fall maximum/minimum max/min
    high/low higher/lower highest/lowest large/small larger/smaller largest/smallest big/small bigger/smaller
    biggest/smallest long/short longer/shorter longest/shortest fast/slow faster/slower fastest/slowest
    early/late earlier/later earliest/latest first/last old/new older/newer oldest/newest older/younger
    hot/cold hotter/colder warm/cool cheap/expensive cheaper/dearer cheapest/dearest strong/weak
    easy/hard easy/difficult
    good/bad good/poor better/worse best/worst right/wrong true/false safe/dangerous safe/harmful full/empty
    light/heavy light/dark thick/thin fat/thin wide/narrow deep/shallow near/far rich/poor spicy/mild soft/hard wet/dry
    open/closed open/close opening/closing opened/closed on/off in/out up/down start/end start/finish begin/end
    enable/disable enabled/disabled activate/deactivate lock/unlock allow/block allowed/blocked accept/dispute
    grant/revoke approve/disapprove permit/restrict add/remove insert/delete create/delete attach/detach
    connect/disconnect install/uninstall subscribe/unsubscribe upgrade/downgrade upload/download import/export
    push/pull send/receive give/take buy/sell borrow/lend lend/borrow rent/own win/lose gain/lose pass/fail join/leave
    enter/exit arrive/depart arrival/departure arrivals/departures import/exports hire/fire employ/dismiss
    encrypt/decrypt compress/decompress show/hide expand/collapse pause/resume suspend/resume mute/unmute
    include/omit included/extra inclusive/exclusive internal/external inside/outside public/private public/internal
    local/remote domestic/international online/offline online/paper full-time/part-time permanent/temporary
    fixed/variable manual/automatic incoming/outgoing inbound/outbound input/output debit/credit asset/liability
    profit/loss income/expense benefit/drawback benefits/drawbacks advantage/disadvantage advantages/disadvantages
    pros/cons benefits/downsides advantages/drawbacks benefits/risks strengths/weaknesses success/failure
    before/after above/below over/under front/back top/bottom left/right north/south east/west
    always/never everyone/nobody all/none employer/employee landlord/tenant buyer/seller lender/borrower
    parent/child adult/child adults/children adults/kids men/women men's/women's male/female husband/wife
    brother/sister mother/father son/daughter uncle/aunt boy/girl boys/girls he/she him/her his/hers
    positive/negative optimistic/pessimistic active/passive visible/hidden polite/rude happy/sad smart/stupid
    clever/stupid brave/cautious brave/cowardly courageous/fearful courageous/cowardly humble/proud modest/proud
    humble/arrogant religious/secular progressive/conservative liberal/conservative defensive/offensive hopeful/hopeless
    powerful/powerless careful/careless useful/useless homeless/housed meaningful/meaningless helpful/unhelpful
    generous/stingy generous/selfish honest/deceitful lazy/hardworking calm/nervous quiet/loud young/old alive/dead
    love/hate like/dislike trust/distrust agree/disagree legal/criminal mandatory/optional required/optional
    compulsory/voluntary guilty/innocent present/absent plural/singular simple/complex simple/complicated
    work/rest morning/evening day/night am/pm check-in/check-out deposit/withdraw deposits/withdrawals
    win/lost guest/host teacher/student doctor/patient question/answer cause/effect ascending/descending
    wake/sleep push/pull tighten/loosen freeze/unfreeze freeze/thaw hide/reveal attack/defend
    success/failure rise/drop raises/cuts grow/shrink growth/decline gross/net
""")
# A word with one of these in front is its opposite ("unlock", "inactive"); checked only when both words occur.
EN_NEGATIVE_PREFIXES: Final = frozenset({"un", "in", "im", "il", "ir", "dis", "non", "de", "mis", "self"})

ZH_ANTONYMS: Final = _pairs("""
    开启/关闭 開啟/關閉 打开/关闭 打開/關閉 启用/禁用 啟用/停用 开/关 增加/减少 增加/減少 提高/降低 最大/最小 最高/最低
    最多/最少 多/少 大/小 高/低 长/短 長/短 快/慢 早/晚 新/旧 新/舊 好/坏 好/壞 优点/缺点 優點/缺點 好处/坏处
    上/下 左/右 内/外 內/外 前/后 前/後 之前/之后 之前/之後 以上/以下 开始/结束 開始/結束 买/卖 買/賣 借/还
    加入/退出 进口/出口 進口/出口 上传/下载 上傳/下載 安装/卸载 安裝/卸載 接受/取消 允许/阻止
    允許/阻止 升级/降级 升級/降級
    锁定/解锁 鎖定/解鎖
    合法/违法 合法/違法 安全/危险 安全/危險 收入/支出 全职/兼职 全職/兼職 国内/国际 國內/國際 成人/儿童 成人/兒童
    房东/租客 男/女 入住/退房 增/减 存款/取款 公开/私有 內部/外部 内部/外部 暂停/恢复 暫停/恢復 登录/退出 登錄/登出
""")

# Words that may stand for each other without changing the answer. One line is one group; both have to mean the
# same in every question, so "delete/remove" is in and "change/cancel" is not.
SYNONYMS: Final = """
    cost price fee charge
    cancel terminate end
    quick fast speedy rapid
    quickest fastest
    shop store
    begin start
    big large
    bigger larger
    buy purchase
    holiday vacation
    delivery shipping
    deliver ship dispatch
    update change modify edit amend
    delete remove erase
    create make generate
    fix repair mend
    book reserve
    booking reservation
    phone telephone mobile
    photo picture image
    job work
    car vehicle motor
    home house
    film movie
    smart intelligent clever
    happy joyful glad
    angry furious
    scared frightened afraid
    thankful grateful
    courageous brave
    humble modest
    spiritual religious
    vocal outspoken
    organize organise
    warranty guarantee
    include included cover covered
    previous earlier prior
    offer provide do
    trip journey
    kid child children
    doctor physician gp
    jab vaccine vaccination
    way method process step steps procedure
    document paperwork
    company firm business
    salary pay wage
    staff employee worker
    rule policy
    vegetarian veggie
    login log-in sign-in signin
    e-mail email
    wi-fi wifi
    boss manager
    nearest closest
    choose select pick
    install set-up setup
    final last
    app application
    repo repository
    annual yearly
    illness sickness
    allowed permitted
    maximum max
    minimum min
"""

# Pairs of these relations mean the same both ways round.
SYMMETRIC: Final = _set("""
    married marry engaged dating date related relate relative connected connect friends friend acquaintance
    acquainted close similar same equal equivalent different difference differences between compare comparison versus
    vs differ match together both siblings cousins neighbours neighbors distance meet met
""")
