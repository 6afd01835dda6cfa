# The programs that each way builds: README's, one with all trackers, and one that compiles in seconds.
add_executable(program ${CMAKE_CURRENT_LIST_DIR}/../../examples/first.cpp)
target_link_libraries(program PRIVATE etude::etude)

add_executable(tracked EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/tracked.cpp)
target_link_libraries(tracked PRIVATE etude::trackers)

add_executable(small EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/small.cpp)
target_link_libraries(small PRIVATE etude::base torch)
