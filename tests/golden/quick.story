# Help
--help
run --help
train --help
reproduce --help
sweep --help
list --help
show --help
doctor --help
leaderboard --help
export --help
convert --help
convert glove --help
compare --help
analyze --help
analyze alignment --help
report --help
parity --help
check --help
lock --help
verify --help
timing --help
data --help
data fetch --help
data verify --help
data overlap --help
new --help
new task --help
new method --help
# What there is
list tasks
list encoders
list recipes
list tables
list corpora
list suites
list protocols
list ablations
list tasks --language es
list nothing
list recipes --json
show sts12
show quickstart
show minilm
show simcse-bert-base
show bert-base-flow-nli
show simcse-small
show simcse-5
show wiki1m
show minilmm
show sts12 --json
# Scores
run --dry-run -e own_encoders:Hashed -t quickstart
run -e own_encoders:Hashed -t quickstart
run -e own_encoders:Hashed -t quickstart
run -e own_encoders:Hashed --set size=16 -t quickstart
run -e own_encoders:ready -t quickstart --json
run -e minilm -t quickstart
run -e minilm,own_encoders:Hashed -t quickstart-en --protocol wmean
run -e minilm,own_encoders:Hashed -t quickstart-en --protocol semeval
run -e minilm --set pooling=cls -t quickstart-en -v
run -e minilm -t quickstart-probe --protocol logreg --seeds 0,1
run -e own_encoders:Broken -t quickstart-en
run -e minilmm -t quickstart-en
run -e minilm -t quickstrat
run -e minilm -t quickstart-en --protocol spearman
run -e minilm -t quickstart-en --set poling=cls
cat results/minilm/quickstart-en.test.*.json
# Tables
leaderboard
leaderboard --suite quickstart
leaderboard --suite quickstart --format markdown
leaderboard --suite quickstart --format latex
leaderboard --suite quickstart --format csv
leaderboard --suite quickstart --format json
leaderboard --suite quickstart --format html --out board.html
leaderboard --suite quickstart --ranks
leaderboard --suite quickstart --protocol wmean
leaderboard --table simcse-5
leaderboard --table simcse-5 --format markdown --add hashed:Ours
leaderboard --table simcse-5 --format latex --add minilm:Ours --rows-only
leaderboard --table bert-flow-3
leaderboard --table consert-2
leaderboard --table simcse
leaderboard --suite sts --format markdown
# Comparisons
compare minilm hashed
compare minilm hashed --format markdown
compare minilm hashed --json
compare minilm hashed ready-made --tasks quickstart-en
compare minilm hashed --tasks quickstart-en --protocol wmean --independent
compare minilm nobody
parity minilm minilm+pooling=cls -t quickstart-en
parity own_encoders:Hashed own_encoders:ready -t quickstart-en
# CI
lock --out results/lock.json
lock --out small-lock.json -e minilm
check results --against results/lock.json
check results --against results/lock.json --rule statistical --json
check results --against small-lock.json -e hashed --against-encoder minilm --rule statistical
check results --against small-lock.json -e hashed --against-encoder minilm --junit check.xml --summary check.md
cat check.md
verify
verify --json
# For other tools
export --format model-index -e minilm --out index.yaml
export --format every-eval-ever -e minilm --out every
cat index.yaml every/*/*/*.json
# Figures
analyze alignment -e minilm,own_encoders:Hashed -t quickstart-en
analyze similarity -e minilm -t quickstart-en --out similarity.csv
analyze spectrum -e minilm -t quickstart-en
analyze layers -e minilm -t quickstart-en
analyze errors -e minilm -t quickstart-en
analyze robustness -e own_encoders:Hashed -t quickstart-en
analyze neighbours -e minilm,own_encoders:Hashed -t quickstart-en
analyze map -e minilm -t quickstart-en --json
report -e own_encoders:Hashed -t quickstart-en --out report.html
# Training
train little --cards cards --base base --seeds 1,2 --dry-run
~ train little --cards cards --base base --seeds 1,2
~ run -e little -t quickstart-en --cards cards
~ show little --cards cards
train litle --cards cards --base base
train little --cards cards --set temprature=0.1 --base base --dry-run
# First cards
new task pairs.csv
cat cards/tasks/pairs.toml
run -e own_encoders:Hashed -t pairs --cards cards
new encoder base
new method Mine
~ leaderboard --suite quickstart --format markdown --cards cards
# Python
python "import stsbench; print(*stsbench.evaluate('own_encoders:Hashed', 'quickstart'), sep='\n')"
python "import stsbench; print(stsbench.compare('minilm', 'hashed', results='results'))"
~ python "import stsbench; print(stsbench.leaderboard(suite='quickstart', results='results'))"
python "import stsbench; print(stsbench.read_results('results'))"
python "import stsbench; print(stsbench.load_encoder('minilm').encode(['a cat', 'a dog']).round(4)[:, :4].tolist())"
