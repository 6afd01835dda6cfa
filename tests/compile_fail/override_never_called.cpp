// EXPECT: never_called_by_train<Mine, etude::mistake::method::save_model_so_override_save_checkpoint>
// NEEDS: torch
#include "etude/trainer.hpp"

struct Mine : etude::TrainerBase<Mine> {
  using TrainerBase::TrainerBase;
#ifdef ETUDE_MISTAKE
  void save_model(const std::filesystem::path& directory) const { TrainerBase::save_model(directory); }
#else
  using TrainerBase::save_model;
  void save_model(const std::string& parent, const std::string& name) const { save_model(parent + name); }
#endif
};

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
