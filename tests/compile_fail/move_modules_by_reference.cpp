// EXPECT: MoveModulesToDeviceCallback is no template, and takes each module as a shared_ptr
// NEEDS: torch
#include "etude/callbacks/move_modules_to_device.hpp"

etude::MoveModulesToDeviceCallback move(torch::nn::Linear teacher) {
#ifdef ETUDE_MISTAKE
  return etude::MoveModulesToDeviceCallback(teacher.get());
#else
  return etude::MoveModulesToDeviceCallback(teacher);
#endif
}
