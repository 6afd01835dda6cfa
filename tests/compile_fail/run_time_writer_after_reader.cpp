// EXPECT: writer_stands_after_a_reader_of_the_event_so_move_it_before<Writer, Reader, etude::BackwardBegin>
// NEEDS: torch
#include "etude/etude.hpp"

struct Writer {
  void on(etude::BackwardBegin& e) { e.loss = e.loss * 2; }
};
struct Reader {
  torch::Tensor loss;
  void on(const etude::BackwardBegin& e) { loss = e.loss; }
};

#ifdef ETUDE_MISTAKE
using Trainer = etude::Trainer<Reader, etude::RuntimeCallbacks>;
#else
using Trainer = etude::Trainer<etude::RuntimeCallbacks>;
#endif

void add(Trainer& trainer) { trainer.add_callback(Writer{}); }
