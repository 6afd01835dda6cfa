#include <etude.h>

/* Programs hand these structs to a library of another age. */
typedef char size_of_etude_tensor[sizeof(void*) == 8 && sizeof(etude_tensor) == 48 ? 1 : -1];
size_of_etude_tensor* etude_header_is_c(void);
size_of_etude_tensor* etude_header_is_c(void) { return 0; }
