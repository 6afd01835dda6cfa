#include <etude.h>

etude_status etude_header_is_cpp(etude_trainer* trainer);
etude_status etude_header_is_cpp(etude_trainer* trainer) { return etude_trainer_finish(trainer); }
