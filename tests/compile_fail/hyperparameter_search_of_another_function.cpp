// EXPECT: etude: hyperparameter_search calls the function with const TrainingArguments&
// NEEDS: torch
#include "etude/trainer.hpp"
#include "etude/tune/hyperparameter_search.hpp"

etude::SearchResult search(const etude::TrainingArguments& args) {
#ifdef ETUDE_MISTAKE
  const auto make = [] { return etude::Trainer<>(etude::TrainerOptions{}); };
#else
  const auto make = [](const etude::TrainingArguments& trial_args) {
    return etude::Trainer<>(etude::TrainerOptions{.args = trial_args});
  };
#endif
  return etude::hyperparameter_search(make, etude::HyperparameterSearchOptions{}, args);
}
