"""How relations and numbers are asked for; the last phrasing of each is for held-out texts."""

# (relation, whether it is followed from object to subject) -> noun phrases
NOUN_PHRASES = {
    ("birthplace", False): (
        "the town where {} was born",
        "the birthplace of {}",
        "the town in which {} came into the world",
    ),
    ("employer", False): (
        "the company where {} worked",
        "the employer of {}",
        "the company that employed {}",
    ),
    ("mayor", False): ("the mayor of {}", "the person who is mayor of {}", "the head of {}"),
    ("waterway", False): (
        "the river that {} lies on",
        "the river on which {} stands",
        "the river that passes {}",
    ),
    ("author", False): ("the author of {}", "the person who wrote {}", "the writer of {}"),
    ("setting", False): (
        "the town where {} takes place",
        "the town in which {} is set",
        "the scene of {}",
    ),
    ("founder", False): (
        "the founder of {}",
        "the person who founded {}",
        "the person who established {}",
    ),
    ("seat", False): (
        "the town where {} has its seat",
        "the town with the headquarters of {}",
        "the town where {} is based",
    ),
    ("mouth", False): (
        "the river that {} flows into",
        "the river that {} joins",
        "the river where {} ends",
    ),
    ("mayor", True): (
        "the town whose mayor is {}",
        "the town that {} leads as mayor",
        "the town with {} at its head",
    ),
    ("author", True): ("the novel by {}", "the novel that {} wrote", "the book written by {}"),
    ("founder", True): (
        "the company that {} founded",
        "the company founded by {}",
        "the company established by {}",
    ),
}
# number -> questions
NUMBER_QUESTIONS = {
    "born": (
        "In which year was {} born?",
        "What is the year of birth of {}?",
        "When, by year, did the life of {} begin?",
    ),
    "settled": (
        "In which year was {} settled?",
        "Since which year has {} been settled?",
        "When, by year, were the first houses of {} built?",
    ),
    "published": (
        "In which year was {} published?",
        "What is the year of publication of {}?",
        "When, by year, was {} first printed?",
    ),
    "opened": (
        "In which year was {} founded?",
        "What is the year of foundation of {}?",
        "When, by year, was {} opened?",
    ),
    "length": (
        "How many kilometers long is {}?",
        "What is the length of {} in km?",
        "Over how many km does {} run?",
    ),
}
# number -> questions about two entities, of which the one with the smaller value is the answer
COMPARISONS = {
    "born": (
        "Who was born first, {} or {}?",
        "Who is older, {} or {}?",
        "Whose birth was earlier, {} or {}?",
    ),
    "settled": (
        "Which was settled first, {} or {}?",
        "Which town is older, {} or {}?",
        "Where were houses built earlier, {} or {}?",
    ),
    "published": (
        "Which was published first, {} or {}?",
        "Which novel is older, {} or {}?",
        "Which was printed earlier, {} or {}?",
    ),
    "opened": (
        "Which was founded first, {} or {}?",
        "Which company is older, {} or {}?",
        "Which was opened earlier, {} or {}?",
    ),
    "length": (
        "Which is shorter, {} or {}?",
        "Which river is less long, {} or {}?",
        "Which runs over fewer km, {} or {}?",
    ),
}
# relation -> questions for the number of subjects of an object
COUNTS = {
    "author": (
        "How many novels did {} write?",
        "Of how many novels is {} the author?",
        "How many books are by {}?",
    ),
    "setting": (
        "How many novels are set in {}?",
        "How many novels take place in {}?",
        "Of how many books is {} the scene?",
    ),
    "seat": (
        "How many companies have their seat in {}?",
        "How many companies have headquarters in {}?",
        "How many companies are based in {}?",
    ),
}
WHICH = {"person": "Who is {}?", "": "What is {}?"}
# Words that pages use for a fact.
FACT_WORDS = {
    "birthplace": "born", "employer": "worked employed", "mayor": "mayor", "waterway": "town river",
    "author": "novel author", "setting": "novel set plot", "founder": "company founder founded",
    "seat": "company seat headquarters", "mouth": "flows", "born": "born", "settled": "settled",
    "published": "published", "opened": "company opened founded", "length": "km long",
}  # fmt: skip
