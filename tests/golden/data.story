# The seven STS tests and the transfer tasks, of real data
run -e own_encoders:Hashed -t sts
run -e own_encoders:Hashed --set size=16 -t sts
run -e minilm -t stsb --json
run -e minilm -t stsb --protocol wmean
run -e own_encoders:Hashed -t sts17,sts14-es,stsb-raw,sickr-mteb
~ run -e own_encoders:Hashed -t cr,mrpc
~ run -e own_encoders:Hashed -t mrpc --seeds 1
~ run -e own_encoders:Hashed -t cr,mrpc --protocol logreg
~ run -e own_encoders:Hashed -t sicke,stsb-regression
run -e own_encoders:Hashed -t stsb --split validation
leaderboard --suite sts
leaderboard --suite sts --format markdown
~ leaderboard --suite transfer --format markdown
leaderboard --suite sts --ranks
leaderboard --table simcse-5 --add hashed:Ours --format markdown
compare hashed hashed+size=16
compare hashed minilm --tasks sts --format markdown
compare hashed minilm --tasks stsb --json
lock --out lock.json
check results --against lock.json --rule statistical
verify
data verify stsb,sts12
data overlap --help
export --format mteb --out mteb
export --format eval-results -e minilm --out evals
cat mteb/*/*/*.json evals/* evals/*/*
sweep values.toml --cards cards --base base --text text.txt --dry-run
~ sweep values.toml --cards cards --base base --text text.txt --out swept
