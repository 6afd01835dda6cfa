// EXPECT: error: .*etude/study/study\.hpp needs a library: link etude::study
// ALONE: without the mistake it includes another header
#ifdef ETUDE_MISTAKE
#include "etude/study/study.hpp"
#else
#include "etude/study/trial.hpp"
#endif

int main() {}
